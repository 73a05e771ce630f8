//! Tiny trees in the layouts of the published data sets.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::*;
use gallerist_data::{BoundingBox, DatasetLayout, Error, ImageSet, OpenOptions};
use tempfile::TempDir;

/// A folder with text files as given and a picture at each of the other paths.
fn tree(texts: &[(&str, &str)], images: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<_> = texts.iter().map(|(p, t)| ((*p).to_owned(), t.as_bytes().to_vec())).collect();
    for (i, path) in images.iter().enumerate() {
        files.push(((*path).to_owned(), png(picture(12, 10, i as u8))));
    }
    write_tree(folder.path(), &files);
    folder
}

/// The same tree as a zip.
fn zipped(folder: &Path) -> PathBuf {
    fn walk(root: &Path, at: &Path, files: &mut Vec<(String, Vec<u8>)>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, files);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.push((name, fs::read(&path).unwrap()));
            }
        }
    }
    let mut files = Vec::new();
    walk(folder, folder, &mut files);
    let path = folder.with_extension("zip");
    write_zip(&path, &files);
    path
}

fn split(name: &str) -> OpenOptions {
    OpenOptions { split: Some(name.to_owned()), ..OpenOptions::default() }
}

fn open(folder: impl AsRef<Path>, options: &OpenOptions) -> Result<ImageSet, Error> {
    ImageSet::open_with(&[folder], options)
}

/// One line per image: path, class, split, and camera where there are cameras.
fn described(set: &ImageSet) -> Vec<String> {
    (0..set.len())
        .map(|i| {
            let label = set.labels().map_or("-", |l| &set.class_names()[l[i] as usize]);
            let camera = set.cameras().map_or(String::new(), |c| format!(" {}", c[i]));
            format!("{} {label} {}{camera}", set.path(i), set.split(i).unwrap_or("-"))
        })
        .collect()
}

/// Opens a folder and a zip of it, which must be the same, in the layout that must be told by itself.
fn both(folder: &TempDir, layout: DatasetLayout, options: &OpenOptions) -> ImageSet {
    let set = open(folder.path(), options).unwrap();
    let zip = zipped(folder.path());
    let packed = open(&zip, options).unwrap();
    fs::remove_file(zip).unwrap();
    assert_eq!(described(&set), described(&packed));
    assert_eq!((set.layout(), packed.layout()), (Some(layout), Some(layout)));
    let notes: Vec<_> = packed.notes().iter().map(|n| n.replace(".zip/", "/")).collect();
    assert_eq!(set.notes(), notes);
    let named = OpenOptions { layout: Some(layout), ..options.clone() };
    assert_eq!(described(&open(folder.path(), &named).unwrap()), described(&set));
    for i in 0..set.len() {
        assert_eq!(set.decode(i).unwrap(), packed.decode(i).unwrap());
    }
    set
}

fn cub() -> TempDir {
    tree(
        &[
            ("CUB_200_2011/images.txt", "1 001.A/x.jpg\n2 100.B/y.jpg\n3 101.C/z.jpg\n4 001.A/w.jpg\n"),
            ("CUB_200_2011/image_class_labels.txt", "1 1\n2 100\n3 101\n4 1\n"),
            ("CUB_200_2011/classes.txt", "1 001.A\n100 100.B\n101 101.C\n"),
            ("CUB_200_2011/bounding_boxes.txt", "1 2.0 3.0 4.0 5.0\n2 0 0 99 99\n3 1.5 0 2 2\n4 50 50 2 2\n"),
            ("CUB_200_2011/train_test_split.txt", "1 0\n2 1\n3 0\n4 1\n"),
            ("attributes.txt", "1 has_bill_shape::curved\n"),
        ],
        &[
            "CUB_200_2011/images/001.A/x.jpg",
            "CUB_200_2011/images/100.B/y.jpg",
            "CUB_200_2011/images/101.C/z.jpg",
            "CUB_200_2011/images/001.A/w.jpg",
            "segmentations/001.A/x.png",
        ],
    )
}

#[test]
fn cub_200_2011_splits_by_class_and_has_boxes() {
    let folder = cub();
    let set = both(&folder, DatasetLayout::CUB200_2011, &OpenOptions::default());
    assert_eq!(
        described(&set),
        [
            "CUB_200_2011/images/001.A/x.jpg 001.A train",
            "CUB_200_2011/images/100.B/y.jpg 100.B train",
            "CUB_200_2011/images/101.C/z.jpg 101.C test",
            "CUB_200_2011/images/001.A/w.jpg 001.A train",
        ]
    );
    assert_eq!(
        set.notes(),
        [
            "split `train` of CUB-200-2011 has 3 images of 2 classes; published are 5864 images of 100 classes",
            "split `test` of CUB-200-2011 has 1 image of 1 class; published are 5924 images of 100 classes",
        ]
    );
    let test = both(&folder, DatasetLayout::CUB200_2011, &split("test"));
    assert_eq!((test.len(), test.class_names()), (1, &["101.C".to_owned()][..]));
    assert_eq!(test.notes().len(), 1);
    let error = open(folder.path(), &split("query")).unwrap_err().to_string();
    assert!(error.ends_with("no image has the split `query`; there are `test` (1), `train` (3)"), "{error}");

    let cropped = open(folder.path(), &OpenOptions { crop_boxes: true, ..OpenOptions::default() }).unwrap();
    assert_eq!(set.bounding_box(0), Some(BoundingBox { left: 2.0, top: 3.0, width: 4.0, height: 5.0 }));
    let whole = set.decode(0).unwrap();
    let size = gallerist_data::Size { height: 5, width: 4 };
    assert_eq!(cropped.decode(0).unwrap(), whole.crop(2, 3, size));
    // Cut at the image's edges, and every pixel that is touched.
    assert_eq!(cropped.decode(1).unwrap(), set.decode(1).unwrap());
    assert_eq!(cropped.decode(2).unwrap().size().to_string(), "2 x 3");
    let error = cropped.decode(3).unwrap_err().to_string();
    assert!(error.ends_with("2 x 2 pixels at (50, 50), holds nothing of its 10 x 12 pixels"), "{error}");
}

#[test]
fn images_that_annotations_name_and_that_are_missing_are_counted_and_listed() {
    let folder = cub();
    for path in ["001.A/x.jpg", "101.C/z.jpg"] {
        fs::remove_file(folder.path().join("CUB_200_2011/images").join(path)).unwrap();
    }
    let set = open(folder.path(), &OpenOptions::default()).unwrap();
    assert_eq!(set.len(), 2);
    assert_eq!(set.missing(), ["CUB_200_2011/images/001.A/x.jpg", "CUB_200_2011/images/101.C/z.jpg"]);
    assert_eq!(
        set.notes()[0],
        "2 of 4 annotated images are missing and left out: `CUB_200_2011/images/001.A/x.jpg`, \
         `CUB_200_2011/images/101.C/z.jpg`"
    );
    fs::remove_dir_all(folder.path().join("CUB_200_2011/images")).unwrap();
    let error = open(folder.path(), &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("no images in `"), "{error}");
}

#[test]
fn broken_annotations_are_refused_by_file_and_line() {
    let broken = |file: &str, text: &[u8]| {
        let folder = cub();
        fs::write(folder.path().join("CUB_200_2011").join(file), text).unwrap();
        let error = open(folder.path(), &OpenOptions::default()).unwrap_err();
        assert!(error.hint().is_some());
        error.to_string().split_once(&format!("{file}`")).map(|(_, rest)| rest.to_owned()).unwrap()
    };
    assert_eq!(broken("images.txt", b"1 001.A/x.jpg\n2\n"), ", line 2: 1 fields where there should be 2");
    assert_eq!(
        broken("images.txt", b"7 001.A/x.jpg\n"),
        ", line 1: image 7 has no class in `image_class_labels.txt`"
    );
    assert_eq!(broken("images.txt", b"1 001.A/x.jpg\n\xff\n"), ", line 2: not UTF-8");
    assert_eq!(
        broken("image_class_labels.txt", b"1 1\n2 201\n"),
        ", line 2: class 201, and there are 1 to 200"
    );
    assert_eq!(broken("image_class_labels.txt", b"\n1 one\n"), ", line 2: the class is `one`");
    assert_eq!(broken("bounding_boxes.txt", b"1 2 3 4 x\n"), ", line 1: a coordinate is `x`");
}

#[test]
fn cub_200_of_2010_is_told_by_its_200_numbered_folders() {
    let images: Vec<String> =
        (1..=200).map(|c| format!("images/{c:03}.Bird_{c}/Bird_{c}_0001_29.jpg")).collect();
    let paths: Vec<&str> = images.iter().map(String::as_str).collect();
    let folder = tree(&[], &paths);
    let train = both(&folder, DatasetLayout::CUB200_2010, &split("train"));
    let test = both(&folder, DatasetLayout::CUB200_2010, &split("test"));
    assert_eq!((train.len(), test.len()), (100, 100));
    assert_eq!(train.class_names()[99], "100.Bird_100");
    assert_eq!(test.class_names()[0], "101.Bird_101");
    assert!(test.notes()[0].ends_with("published are 3043 images of 100 classes"), "{:?}", test.notes());
    // With a class less they are class folders like any other.
    fs::remove_dir_all(folder.path().join("images/007.Bird_7")).unwrap();
    assert_eq!(open(folder.path(), &OpenOptions::default()).unwrap().layout(), Some(DatasetLayout::FOLDERS));
}

#[test]
fn cub_200_of_2010_has_the_bounding_boxes_of_the_annotations_beside_it() {
    let bird = |c: usize| format!("{c:03}.Bird_{c}/Bird_{c}_0001_29");
    let images: Vec<String> = (1..=200).map(|c| format!("images/{}.jpg", bird(c))).collect();
    let folder = tree(&[], &images.iter().map(String::as_str).collect::<Vec<_>>());
    let annotation = |c: usize| format!("annotations-mat/{}.mat", bird(c));
    let boxes = fixture("cub200_2010/bbox.mat");
    write_tree(folder.path(), &[(annotation(1), boxes.clone()), (annotation(2), boxes)]);
    let set = both(&folder, DatasetLayout::CUB200_2010, &OpenOptions::default());
    let expected = BoundingBox { left: 2.0, top: 1.0, width: 7.5, height: 4.0 };
    let found: Vec<_> = (0..3).map(|i| set.bounding_box(i)).collect();
    assert_eq!(found, [Some(expected), Some(expected), None]);
    assert!(!set.notes().iter().any(|note| note.contains("skipped")), "{:?}", set.notes());
    let cropped = OpenOptions { crop_boxes: true, ..OpenOptions::default() };
    let set = open(folder.path(), &cropped).unwrap();
    let image = set.decode(0).unwrap();
    assert_eq!((image.width(), image.height()), (8, 4));
    let note = "198 of 200 images have no bounding box and are used whole";
    assert!(set.notes().iter().any(|n| n == note), "{:?}", set.notes());
    for (bytes, problem) in [
        (fixture("cars/cars_annos.mat"), "it has no structure array `bbox`"),
        (fixture("cub200_2010/edge.mat"), "`bbox` has no number `bottom`"),
        (b"no".to_vec(), "2 bytes are no MAT-file"),
    ] {
        write_tree(folder.path(), &[(annotation(2), bytes)]);
        let error = open(folder.path(), &OpenOptions::default()).unwrap_err().to_string();
        assert!(error.ends_with(&format!("Bird_2_0001_29.mat`: {problem}")), "{error}");
    }
}

fn fixture(path: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)).unwrap()
}

fn cars(files: &[&str], images: &[&str]) -> TempDir {
    let folder = tree(&[], images);
    let files: Vec<_> = files.iter().map(|f| ((*f).to_owned(), fixture(&format!("cars/{f}")))).collect();
    write_tree(folder.path(), &files);
    folder
}

#[test]
fn cars196_is_read_from_the_single_list() {
    let images: Vec<String> = (1..=5).map(|i| format!("car_ims/{i:06}.jpg")).collect();
    let folder = cars(&["cars_annos.mat"], &images.iter().map(String::as_str).collect::<Vec<_>>());
    let set = both(&folder, DatasetLayout::CARS196, &OpenOptions::default());
    let cars = [
        "car_ims/000001.jpg 001.AM General Hummer SUV 2000 train",
        "car_ims/000002.jpg 099.Maker Model 99 test",
        "car_ims/000003.jpg 098.Maker Model 98 train",
        "car_ims/000004.jpg 196.Maker Model 196 test",
        "car_ims/000005.jpg 001.AM General Hummer SUV 2000 train",
    ];
    assert_eq!(described(&set), cars);
    // Corners count from 1 and belong to the box.
    assert_eq!(set.bounding_box(0), Some(BoundingBox { left: 2.0, top: 1.0, width: 4.0, height: 4.0 }));
}

#[test]
fn cars196_is_read_from_the_devkit() {
    let images =
        ["cars_train/00001.jpg", "cars_train/00002.jpg", "cars_train/00003.jpg", "cars_test/00001.jpg"];
    let lists = ["devkit/cars_train_annos.mat", "devkit/cars_test_annos.mat", "devkit/cars_meta.mat"];
    let folder = cars(&lists, &images);
    let set = both(&folder, DatasetLayout::CARS196, &OpenOptions::default());
    assert_eq!(set.len(), 3);
    assert_eq!(described(&set)[1], "cars_train/00002.jpg 099.Maker Model 99 test");
    assert!(set.notes()[0].ends_with(
        "cars_test_annos.mat` gives no classes, and its 2 images are left out; \
         `cars_test_annos_withlabels.mat` has them"
    ));
    let labeled = "cars_test_annos_withlabels.mat";
    fs::write(folder.path().join(labeled), fixture(&format!("cars/{labeled}"))).unwrap();
    let set = both(&folder, DatasetLayout::CARS196, &OpenOptions::default());
    assert_eq!(described(&set)[3], "cars_test/00001.jpg 196.Maker Model 196 test");
    assert_eq!(set.missing(), ["cars_test/00002.jpg"]);

    let list = folder.path().join(lists[0]);
    let whole = fs::read(&list).unwrap();
    fs::write(&list, &whole[..200]).unwrap();
    let error = open(folder.path(), &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.ends_with("cars_train_annos.mat`: it is cut short"), "{error}");
}

#[test]
fn stanford_online_products_has_two_lists() {
    let header = "image_id class_id super_class_id path\n";
    let folder = tree(
        &[
            (
                "Ebay_train.txt",
                &format!("{header}1 1 1 bicycle_final/1_0.JPG\n2 2 1 bicycle_final/2_0.JPG\r\n"),
            ),
            ("Ebay_test.txt", &format!("{header}3 11319 2 sofa_final/3_0.JPG\n")),
            ("Info.txt", "notes\n"),
        ],
        &["bicycle_final/1_0.JPG", "bicycle_final/2_0.JPG", "sofa_final/3_0.JPG"],
    );
    let set = both(&folder, DatasetLayout::ONLINE_PRODUCTS, &OpenOptions::default());
    assert_eq!(
        described(&set),
        [
            "bicycle_final/1_0.JPG 00001 train",
            "bicycle_final/2_0.JPG 00002 train",
            "sofa_final/3_0.JPG 11319 test"
        ]
    );
    assert_eq!(both(&folder, DatasetLayout::ONLINE_PRODUCTS, &split("test")).len(), 1);
}

#[test]
fn inshop_has_train_query_and_gallery_and_test_is_both() {
    let list = "4\nimage_name item_id evaluation_status\n\
        img/MEN/Tees/id_1/01_1_front.jpg id_1 train\nimg/MEN/Tees/id_2/01_1_front.jpg id_2 query\n\
        img/MEN/Tees/id_2/02_1_front.jpg  id_2  gallery\nimg/MEN/Tees/id_2/03_1_front.jpg id_2 gallery\n";
    let boxes = "1\nimage_name clothes_type pose_type x_1 y_1 x_2 y_2\n\
        img/MEN/Tees/id_2/01_1_front.jpg 1 1 002 003 007 006\n";
    let images =
        ["id_1/01", "id_2/01", "id_2/02", "id_2/03"].map(|i| format!("Img/img/MEN/Tees/{i}_1_front.jpg"));
    let folder = tree(
        &[("Eval/list_eval_partition.txt", list), ("Anno/list_bbox_inshop.txt", boxes)],
        &images.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let test = both(&folder, DatasetLayout::IN_SHOP, &split("test"));
    assert_eq!(
        described(&test),
        ["01 id_2 query", "02 id_2 gallery", "03 id_2 gallery"].map(|rest| {
            let (number, rest) = rest.split_once(' ').unwrap();
            format!("Img/img/MEN/Tees/id_2/{number}_1_front.jpg {rest}")
        })
    );
    assert_eq!(test.bounding_box(0), Some(BoundingBox { left: 2.0, top: 3.0, width: 6.0, height: 4.0 }));
    assert_eq!(both(&folder, DatasetLayout::IN_SHOP, &split("train")).len(), 1);

    // The count in the list shows that it is truncated.
    let path = folder.path().join("Eval/list_eval_partition.txt");
    fs::write(&path, list.rsplit_once("img/").unwrap().0).unwrap();
    let error = open(folder.path(), &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.ends_with("line 1: it promises 4 rows, and there are 3"), "{error}");
    fs::write(&path, list.replace(" query", " probe")).unwrap();
    let error = open(folder.path(), &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.ends_with("line 4: the evaluation status is `probe`"), "{error}");
}

#[test]
fn consumer_to_shop_lists_every_image_of_its_pairs_once() {
    let list = "4\nimage_pair_name_1 image_pair_name_2 item_id evaluation_status\n\
        img/A/id_1/comsumer_01.jpg img/A/id_1/shop_01.jpg id_1 train\n\
        img/A/id_2/comsumer_01.jpg img/A/id_2/shop_01.jpg id_2 val\n\
        img/A/id_3/comsumer_01.jpg img/A/id_3/shop_01.jpg id_3 test\n\
        img/A/id_3/comsumer_02.jpg img/A/id_3/shop_01.jpg id_3 test\n";
    let images =
        ["1/comsumer_01", "1/shop_01", "2/comsumer_01", "2/shop_01", "3/comsumer_01", "3/comsumer_02"]
            .map(|i| format!("img/A/id_{i}.jpg"));
    let mut images: Vec<&str> = images.iter().map(String::as_str).collect();
    images.push("img/A/id_3/shop_01.jpg");
    let folder = tree(&[("Eval/list_eval_partition.txt", list)], &images);
    let of = |name: &str| described(&both(&folder, DatasetLayout::CONSUMER_TO_SHOP, &split(name)));
    assert_eq!(
        of("query"),
        ["img/A/id_3/comsumer_01.jpg id_3 query", "img/A/id_3/comsumer_02.jpg id_3 query"]
    );
    assert_eq!(
        of("gallery"),
        ["img/A/id_2/shop_01.jpg id_2 val_shop", "img/A/id_3/shop_01.jpg id_3 gallery_test"]
    );
    assert_eq!(of("gallery_test").len(), 1);
    assert_eq!((of("train").len(), of("val").len(), of("test").len()), (2, 2, 3));
}

#[test]
fn person_sets_are_told_apart_by_their_names_and_keep_junk_and_cameras() {
    let market = tree(
        &[("Market/readme.txt", "x")],
        &[
            "Market/bounding_box_train/0002_c1s1_000451_03.jpg",
            "Market/query/0001_c2s1_001976_00.jpg",
            "Market/bounding_box_test/-1_c3s1_000401_03.jpg",
            "Market/bounding_box_test/0000_c6s3_094992_01.jpg",
            "Market/bounding_box_test/0001_c1s1_001051_00.jpg",
            "Market/gt_bbox/0001_c1s1_001051_00.jpg",
        ],
    );
    let gallery = both(&market, DatasetLayout::MARKET1501, &split("gallery"));
    assert_eq!(gallery.class_names(), ["-1", "0000", "0001"]);
    assert_eq!(gallery.cameras().unwrap(), ["3", "6", "1"]);
    let note =
        "split `gallery` of Market-1501 has 3 images of 1 class; published are 19732 images of 750 classes";
    assert_eq!(gallery.notes(), [note]);
    assert_eq!(both(&market, DatasetLayout::MARKET1501, &split("test")).len(), 4);
    assert_eq!(both(&market, DatasetLayout::MARKET1501, &OpenOptions::default()).len(), 5);

    let duke =
        tree(&[], &["bounding_box_train/0001_c2_f0046182.jpg", "bounding_box_test/0002_c1_f0044158.jpg"]);
    let train = both(&duke, DatasetLayout::DUKE_MTMC, &split("train"));
    assert_eq!(described(&train), ["bounding_box_train/0001_c2_f0046182.jpg 0001 train 2"]);

    let parts = ["detected", "labeled"].map(|kind| {
        ["bounding_box_train/0003_c1_1.png", "query/0002_c2_7.png", "bounding_box_test/0002_c1_9.png"]
            .map(|file| format!("{kind}/{file}"))
    });
    let cuhk = tree(&[], &parts.as_flattened().iter().map(String::as_str).collect::<Vec<_>>());
    let detected = both(&cuhk, DatasetLayout::CUHK03_DETECTED, &split("query"));
    assert_eq!(described(&detected), ["detected/query/0002_c2_7.png 0002 query 2"]);
    let options = OpenOptions { layout: Some(DatasetLayout::CUHK03_LABELED), ..split("query") };
    let labeled = open(cuhk.path(), &options).unwrap();
    assert_eq!(described(&labeled), ["labeled/query/0002_c2_7.png 0002 query 2"]);
    let alone = open(cuhk.path().join("labeled"), &OpenOptions::default()).unwrap();
    assert_eq!((alone.layout(), alone.len()), (Some(DatasetLayout::CUHK03_LABELED), 3));

    let error = open(
        market.path(),
        &OpenOptions { layout: Some(DatasetLayout::DUKE_MTMC), ..OpenOptions::default() },
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("it is not laid out as DukeMTMC-reID: there is no `bounding_box_train`"),
        "{error}"
    );
    fs::rename(
        market.path().join("Market/query/0001_c2s1_001976_00.jpg"),
        market.path().join("Market/query/who.jpg"),
    )
    .unwrap();
    let error = open(market.path(), &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.contains("the name of `Market/query/who.jpg` does not begin with"), "{error}");
}

fn idx(sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, sizes.len() as u8];
    file.extend(sizes.iter().flat_map(|s| s.to_be_bytes()));
    file.extend(bytes);
    file
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn mnist_is_read_plain_and_packed() {
    let pixels: Vec<u8> = (0..3 * 2 * 4).map(|i| i * 10).collect();
    let folder = tree(&[], &[]);
    let put = |name: &str, bytes: Vec<u8>| fs::write(folder.path().join(name), bytes).unwrap();
    put("train-images-idx3-ubyte", idx(&[3, 2, 4], &pixels));
    put("train-labels-idx1-ubyte", idx(&[3], &[7, 0, 7]));
    put("t10k-images-idx3-ubyte.gz", gzip(&idx(&[1, 1, 2], &[5, 6])));
    put("t10k-labels-idx1-ubyte.gz", gzip(&idx(&[1], &[9])));
    let set = both(&folder, DatasetLayout::MNIST, &OpenOptions::default());
    assert_eq!(
        described(&set),
        ["train/000000 7 train", "train/000001 0 train", "train/000002 7 train", "test/000000 9 test"]
    );
    let image = set.decode(1).unwrap();
    assert_eq!((image.size().to_string().as_str(), image.channels()), ("2 x 4", 1));
    assert_eq!(image.pixels(), &pixels[8..16]);
    assert_eq!(set.decode(3).unwrap().pixels(), [5, 6]);
    assert_eq!(both(&folder, DatasetLayout::MNIST, &split("test")).len(), 1);
    assert_eq!(set.with_rotation_classes().unwrap().decode(4 + 3).unwrap().size().to_string(), "2 x 1");

    let problem = |name: &str, bytes: Vec<u8>| {
        let before = fs::read(folder.path().join(name)).unwrap();
        put(name, bytes);
        let error = open(folder.path(), &OpenOptions::default()).unwrap_err().to_string();
        put(name, before);
        error.split_once("`: ").unwrap().1.to_owned()
    };
    let images = "train-images-idx3-ubyte";
    assert_eq!(
        problem(images, idx(&[u32::MAX, u32::MAX, u32::MAX], &pixels)),
        "its header promises 4294967295 x 4294967295 x 4294967295 bytes, and it has 24"
    );
    assert_eq!(
        problem(images, idx(&[3, 2, 4], &pixels[1..])),
        "its header promises 3 x 2 x 4 bytes, and it has 23"
    );
    assert_eq!(problem(images, vec![0, 0, 8]), "3 bytes are too few for the header of an IDX file");
    assert_eq!(
        problem(images, idx(&[24], &pixels)),
        "it does not begin like an IDX file of bytes in 3 dimensions"
    );
    assert_eq!(
        problem(images, idx(&[1, 1, 24], &pixels[..24]).into_iter().collect()),
        "3 labels for 1 images"
    );
    let packed = gzip(&idx(&[1, 1, 2], &[5, 6]));
    let cut = problem("t10k-images-idx3-ubyte.gz", packed[..packed.len() - 9].to_vec());
    assert!(cut.starts_with("it is no whole gzip file: "), "{cut}");
    fs::remove_file(folder.path().join("train-labels-idx1-ubyte")).unwrap();
    let error = open(folder.path(), &OpenOptions::default()).unwrap_err().to_string();
    assert!(
        error.ends_with("there is `train-images-idx3-ubyte`, and no `train-labels-idx1-ubyte`"),
        "{error}"
    );
}

#[test]
fn omniglot_is_one_set_with_a_split_or_either_half() {
    let images = [
        "images_background/Greek/character01/0001_01.png",
        "images_background/Latin/character01/0002_01.png",
        "images_evaluation/Oriya/character46/0003_01.png",
    ];
    let folder = tree(&[("LICENSE", "MIT")], &images);
    let set = both(&folder, DatasetLayout::OMNIGLOT, &OpenOptions::default());
    assert_eq!(set.class_names(), ["Greek/character01", "Latin/character01", "Oriya/character46"]);
    assert_eq!(set.split(2), Some("test"));
    let half = open(folder.path().join("images_background"), &OpenOptions::default()).unwrap();
    assert_eq!(half.class_names(), ["Greek/character01", "Latin/character01"]);
    let archive = omniglot("omniglot_images_evaluation.zip");
    if archive.exists() {
        let set = open(archive, &split("test")).unwrap();
        assert_eq!((set.layout(), set.len()), (Some(DatasetLayout::OMNIGLOT), 13_180));
        assert!(set.notes().is_empty(), "{:?}", set.notes());
    }
}

#[test]
fn boxes_that_are_not_there_and_layouts_of_single_files_are_refused() {
    let folder = tree(&[("list.csv", "path,label\na/1.png,a\n")], &["a/1.png", "b/2.png"]);
    let cropped = OpenOptions { crop_boxes: true, ..OpenOptions::default() };
    let error = open(folder.path(), &cropped).unwrap_err().to_string();
    assert!(error.ends_with("to their bounding boxes, found no boxes"), "{error}");
    let named = |layout| OpenOptions { layout: Some(layout), ..OpenOptions::default() };
    let error = open(folder.path().join("list.csv"), &named(DatasetLayout::CARS196)).unwrap_err().to_string();
    assert!(error.ends_with("it is one file, not laid out as Cars196"), "{error}");
    assert_eq!(open(folder.path().join("list.csv"), &named(DatasetLayout::MANIFEST)).unwrap().len(), 1);
    assert_eq!(open(folder.path(), &named(DatasetLayout::FOLDERS)).unwrap().len(), 2);
}

#[test]
fn a_default_split_is_taken_where_the_layout_has_it() {
    let default = |name: &str| OpenOptions { default_split: Some(name.to_owned()), ..OpenOptions::default() };
    let cub = cub();
    assert_eq!(open(cub.path(), &default("train")).unwrap().len(), 3);
    assert_eq!(open(cub.path(), &default("query")).unwrap().len(), 4);
    let both = OpenOptions { default_split: Some("train".to_owned()), ..split("test") };
    assert_eq!(open(cub.path(), &both).unwrap().len(), 1);
    // The rows of a manifest are the user's own choice.
    let folder =
        tree(&[("m.csv", "path,label,split\na/1.png,a,train\nb/2.png,b,test\n")], &["a/1.png", "b/2.png"]);
    assert_eq!(open(folder.path().join("m.csv"), &default("train")).unwrap().len(), 2);
}
