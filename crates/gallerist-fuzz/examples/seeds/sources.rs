//! Archives, manifests, corrections and annotations.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::Seeds;

/// A grey picture of one pixel.
fn png() -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let picture = image::GrayImage::from_raw(1, 1, vec![9]).expect("a pixel");
    picture.write_to(&mut bytes, image::ImageFormat::Png).expect("a picture");
    bytes.into_inner()
}

fn packed(files: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, content) in files {
        writer.start_file(*name, options).expect("a new name");
        writer.write_all(content).expect("memory");
    }
    writer.finish().expect("memory").into_inner()
}

/// The input of `tree`.
fn tree(files: &[(&str, &str)]) -> Vec<u8> {
    files.iter().flat_map(|(name, text)| format!("\x1E{name}\n{text}").into_bytes()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

pub(crate) fn write(seeds: &Seeds) {
    let picture = png();
    let files: [(&str, &[u8]); 4] = [
        ("train/a/1.png", &picture),
        ("train/b/2.png", &picture),
        ("test/c/3.png", &picture),
        ("a.txt", b"x"),
    ];
    seeds.add("zip", "stored", &packed(&files, CompressionMethod::Stored));
    seeds.add("zip", "deflated", &packed(&files, CompressionMethod::Deflated));
    // A regression: sizes that no archive of this length can hold.
    let mut promised = packed(&files, CompressionMethod::Deflated);
    let header = promised.windows(4).position(|window| window == b"PK\x01\x02").expect("a directory");
    for at in [20, 24] {
        promised[header + at..][..4].copy_from_slice(&(200_u32 << 20).to_le_bytes());
    }
    seeds.add("zip", "bomb-promised", &promised);
    let list = "path,label,camera,split,price\na/1.png,x,1,train,2.5\na/2.png,y,2,test,\n";
    let with_list = [("list.csv", list.as_bytes()), ("a/1.png", &picture), ("a/2.png", &picture)];
    seeds.add("zip", "manifest", &packed(&with_list, CompressionMethod::Deflated));

    seeds.add("manifest", "csv", list.as_bytes());
    seeds.add("manifest", "tsv", list.replace(',', "\t").as_bytes());
    seeds.add("manifest", "labels", "\u{feff}path,label\n\"a, b.png\",x|y\n1.png,\"z\"\"q\"\n".as_bytes());
    seeds.add("manifest", "boxes", b"path,label,left,top,width,height,day\n1.png,a,1,0,2,2,2024-05-01\n");
    seeds.add("relabel", "all", b"kind,image,label,suggested_label,score,detail,action,new_label\nwrong_label,a/1.png,a,b,.9,,relabel,b\noutlier,b/3.png,b,,4,,drop,\n");
    seeds.add("relabel", "class", b"image,label,action,new_label\n,a,relabel,c|d\n");

    let cars = "crates/gallerist-data/tests/fixtures/";
    for file in [
        "cars/cars_annos.mat",
        "cars/plain.mat",
        "cars/devkit/cars_meta.mat",
        "cars/devkit/cars_train_annos.mat",
        "cub200_2010/bbox.mat",
    ] {
        seeds.fixture("mat", &format!("{cars}{file}"));
    }
    let array = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3][..], &[7; 12]].concat();
    let labels = [0, 0, 8, 1, 0, 0, 0, 1, 5];
    seeds.add("idx", "images", &array);
    seeds.add("idx", "labels", &labels);
    seeds.add("idx", "images.gz", &gzip(&array));
    seeds.add("idx", "labels.gz", &gzip(&labels));
    trees(seeds);
}

fn trees(seeds: &Seeds) {
    let add = |name: &str, files: &[(&str, &str)]| seeds.add("tree", name, &tree(files));
    add("folders", &[("a/1.png", ""), ("b/2.png", ""), ("b/3.jpg", ""), ("readme.txt", "x")]);
    add(
        "manifest",
        &[("list.csv", "path,label,split\na.png,x,train\nb.png,y,test\n"), ("a.png", ""), ("b.png", "")],
    );
    add(
        "cub",
        &[
            ("images.txt", "1 001.A/x.jpg\n2 100.B/y.jpg\n"),
            ("image_class_labels.txt", "1 1\n2 100\n"),
            ("classes.txt", "1 001.A\n100 100.B\n"),
            ("bounding_boxes.txt", "1 2.0 3.0 4.0 5.0\n2 0 0 99 99\n"),
            ("train_test_split.txt", "1 0\n2 1\n"),
            ("images/001.A/x.jpg", ""),
            ("images/100.B/y.jpg", ""),
        ],
    );
    add(
        "sop",
        &[
            ("Ebay_train.txt", "image_id class_id super_class_id path\n1 1 1 a/1_0.JPG\n2 2 1 a/2_0.JPG\n"),
            ("Ebay_test.txt", "image_id class_id super_class_id path\n3 11319 2 b/3_0.JPG\n"),
            ("a/1_0.JPG", ""),
            ("a/2_0.JPG", ""),
            ("b/3_0.JPG", ""),
        ],
    );
    add(
        "inshop",
        &[
            (
                "Eval/list_eval_partition.txt",
                "2\nimage_name item_id evaluation_status\nimg/a/1_front.jpg id_1 train\nimg/a/2_front.jpg id_2 query\n",
            ),
            (
                "Anno/list_bbox_inshop.txt",
                "1\nimage_name clothes_type pose_type x_1 y_1 x_2 y_2\nimg/a/1_front.jpg 1 1 002 003 007 006\n",
            ),
            ("Img/img/a/1_front.jpg", ""),
            ("Img/img/a/2_front.jpg", ""),
        ],
    );
    add(
        "shop",
        &[
            (
                "Eval/list_eval_partition.txt",
                "2\nimage_pair_name_1 image_pair_name_2 item_id evaluation_status\nimg/comsumer_01.jpg img/shop_01.jpg id_1 train\nimg/comsumer_02.jpg img/shop_01.jpg id_1 test\n",
            ),
            ("img/comsumer_01.jpg", ""),
            ("img/comsumer_02.jpg", ""),
            ("img/shop_01.jpg", ""),
        ],
    );
    add(
        "market",
        &[
            ("bounding_box_train/0002_c1s1_000451_03.jpg", ""),
            ("query/0001_c2s1_001976_00.jpg", ""),
            ("bounding_box_test/-1_c3s1_000401_03.jpg", ""),
            ("bounding_box_test/0001_c1s1_001051_00.jpg", ""),
        ],
    );
    add("cuhk", &[("detected/bounding_box_train/0003_c1_1.png", ""), ("detected/query/0002_c2_7.png", "")]);
    add(
        "omniglot",
        &[
            ("images_background/Latin/character01/0001_01.png", ""),
            ("images_evaluation/Greek/character02/0002_01.png", ""),
        ],
    );
    add(
        "runs",
        &[
            (
                "run01/class_labels.txt",
                "run01/test/i1.png run01/training/c1.png\nrun01/test/i2.png run01/training/c2.png\n",
            ),
            ("run01/training/c1.png", ""),
            ("run01/training/c2.png", ""),
            ("run01/test/i1.png", ""),
            ("run01/test/i2.png", ""),
        ],
    );
}
