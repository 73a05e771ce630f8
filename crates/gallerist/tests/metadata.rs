//! The further columns of a manifest, from `data info` to the page of a search.

mod common;

use std::path::Path;

use common::{done, refused, root};
use gallerist::data::{Image, Size};
use gallerist::plots::Source;
use gallerist::report::Report;
use gallerist::retrieval::EmbeddingSet;
use gallerist::retrieval::columns::Value as ColumnValue;
use gallerist::retrieval::condition::Condition;
use gallerist::train::{EvaluationConfig, RunDirectory};
use gallerist::{Conditions, pages};
use serde_json::{Value, json};

/// An image of three channels as a BMP.
fn bitmap_of(image: &Image) -> Vec<u8> {
    let (width, height) = (image.width(), image.height());
    let number = |value: usize| (value as u32).to_le_bytes();
    let row = (3 * width).next_multiple_of(4);
    let mut file = b"BM".to_vec();
    for part in [54 + row * height, 0, 54, 40, width, height] {
        file.extend(number(part));
    }
    file.extend([1, 0, 24, 0]);
    file.extend([0; 24]);
    // From the lowest row up, blue before green and red.
    for pixels in image.pixels().chunks(3 * width).rev() {
        file.extend(pixels.chunks(3).flat_map(|pixel| [pixel[2], pixel[1], pixel[0]]));
        file.extend(std::iter::repeat_n(0, row - 3 * width));
    }
    file
}

fn results(dir: &Path, line: &str) -> Vec<Value> {
    let lists: Value = serde_json::from_str(&done(dir, &format!("{line} --json"))).unwrap();
    lists[0]["results"].as_array().unwrap().clone()
}

#[test]
fn columns_of_a_manifest_are_kept_filtered_and_grouped() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    let root = root();
    let train =
        "train configs/smoke.toml --set train.steps=2 --set validation.every=2 --set data.max_test_classes=2";
    done(&root, &format!("{train} --out {}", dir.join("run").display()));
    let images =
        gallerist::data::ImageSet::open(root.join("data/omniglot/omniglot_images_evaluation.zip")).unwrap();
    // Two pictures of each of four products, and one picture without a product.
    let mut manifest = "path,label,product,price,added,shop,colour\n".to_owned();
    for number in 0..9 {
        std::fs::write(dir.join(format!("{number}.png")), images.read(20 * number).unwrap()).unwrap();
        let product = if number == 8 { String::new() } else { format!("P{}", number / 2) };
        let price = ["5", "12.5", "", "80"][number % 4];
        let (shop, colour) = (["x", "y z"][number % 2], ["red|blue", "red", ""][number % 3]);
        let line = format!(
            "{number}.png,a/b{},{product},{price},2024-05-0{},{shop},{colour}\n",
            number % 2,
            number + 1
        );
        manifest += &line;
    }
    std::fs::write(dir.join("list.csv"), manifest).unwrap();

    let info: Value = serde_json::from_str(&done(dir, "data info list.csv --json")).unwrap();
    let kinds = info["columns"].as_array().unwrap().iter();
    let kinds: Vec<(&str, &str, u64)> = kinds
        .map(|c| (c["name"].as_str().unwrap(), c["kind"].as_str().unwrap(), c["values"].as_u64().unwrap()))
        .collect();
    let wanted = [
        ("product", "text", 8),
        ("price", "number", 7),
        ("added", "date", 9),
        ("shop", "text", 9),
        ("colour", "tags", 6),
    ];
    assert_eq!(kinds, wanted);
    assert!(done(dir, "data info list.csv").contains("images with a value"));

    done(dir, "embed --run run --images list.csv --out all.safetensors");
    let set = EmbeddingSet::load(dir.join("all.safetensors")).unwrap();
    assert_eq!(set.columns.row(0)[1], ("price", ColumnValue::Number(5.0)));

    let search = "search --run run --gallery all.safetensors --query 0.png -k 9";
    let all = results(dir, search);
    let first =
        json!({"product": "P0", "price": 5, "added": "2024-05-01", "shop": "x", "colour": ["blue", "red"]});
    assert_eq!((&all[0]["path"], &all[0]["columns"]), (&json!("0.png"), &first));

    // A condition leaves out the others, and changes neither order nor distances.
    let cheap = results(dir, &format!("{search} --where price<20")); // 0, 1, 4, 5, 8
    let kept: Vec<(&Value, &Value, &Value)> = all
        .iter()
        .filter(|item| item["columns"]["price"].as_f64().is_some_and(|price| price < 20.0))
        .map(|item| (&item["index"], &item["distance"], &item["columns"]))
        .collect();
    let found: Vec<(&Value, &Value, &Value)> =
        cheap.iter().map(|item| (&item["index"], &item["distance"], &item["columns"])).collect();
    assert_eq!((found.len(), &found), (5, &kept));
    assert_eq!(results(dir, &format!("{search} --where price<1")), Vec::<Value>::new());

    // One result for each product; the picture without a product is one of its own.
    let groups = results(dir, &format!("{search} --group-by product"));
    let mut seen = Vec::new();
    let firsts: Vec<&Value> = all
        .iter()
        .filter(|item| {
            let product = &item["columns"]["product"];
            let new = product.is_null() || !seen.contains(product);
            seen.push(product.clone());
            new
        })
        .collect();
    assert_eq!(groups.len(), 5);
    for (group, first) in groups.iter().zip(firsts) {
        assert_eq!((&group["index"], &group["distance"]), (&first["index"], &first["distance"]));
        assert_eq!(group["group_size"], if group["index"] == 8 { 1 } else { 2 });
    }
    let means =
        results(dir, &format!("{} --group-by product --group-score mean", search.replace("-k 9", "-k 2")));
    let mean = |product: &Value| {
        let of = all.iter().filter(|item| item["columns"]["product"] == *product);
        let of: Vec<f64> = of.map(|item| item["distance"].as_f64().unwrap()).collect();
        of.iter().sum::<f64>() / of.len() as f64
    };
    assert_eq!(means.len(), 2);
    for item in &means {
        let off = item["distance"].as_f64().unwrap() - mean(&item["columns"]["product"]);
        assert!(off.abs() < 1e-6, "{off}");
    }

    // The same of a gallery in int8, and on the page.
    done(dir, "convert all.safetensors --precision int8 --out small.safetensors");
    let small = search.replace("all.", "small.");
    let found = results(dir, &format!("{small} --where price<20 --group-by product"));
    assert_eq!(found.iter().filter(|item| item["group_size"] == 2).count(), 2);
    done(dir, &format!("{search} --where price<20 --group-by product --html page.html"));
    let page = std::fs::read_to_string(dir.join("page.html")).unwrap();
    assert!(
        page.contains("price&lt;20") && page.contains("one result for each") && page.contains("2024-05-01")
    );

    done(dir, "convert all.safetensors --where shop='x' --out x.safetensors");
    let kept = EmbeddingSet::load(dir.join("x.safetensors")).unwrap();
    assert_eq!(kept, set.select(&[0, 2, 4, 6, 8]));

    let error = refused(dir, &format!("{search} --where prise<20"));
    assert!(
        error.contains("there is no column `prise`") && error.contains("did you mean `price`?"),
        "{error}"
    );
    let error = refused(dir, &format!("{search} --group-by colour"));
    assert!(error.contains("it has tags, and a row may have several"), "{error}");
    let error = refused(dir, "convert all.safetensors --where price<1 --out none.safetensors");
    assert!(error.contains("no row meets the condition"), "{error}");

    // Evaluation and thresholds of a part: the same as those of a file of that part.
    let measured =
        |line: &str| -> Value { serde_json::from_str(&done(dir, &format!("{line} --json"))).unwrap() };
    let mut part = measured("evaluate --embeddings all.safetensors --where shop='x' --metrics recall@1");
    assert_eq!(part["narrowed"][0], json!({"set": "embeddings", "where": "shop='x'", "images": 5, "of": 9}));
    part.as_object_mut().unwrap().remove("narrowed");
    assert_eq!(part, measured("evaluate --embeddings x.safetensors --metrics recall@1"));
    let pair = "evaluate --query all.safetensors --gallery all.safetensors --metrics recall@1";
    let pair = measured(&format!("{pair} --query-where price<20 --gallery-where shop='x'"));
    assert_eq!((&pair["narrowed"][0]["images"], &pair["narrowed"][1]["images"]), (&json!(5), &json!(5)));
    let error = refused(dir, "evaluate --embeddings all.safetensors --where price<1");
    assert!(error.contains("no row of the embeddings meets the condition `price<1`"), "{error}");

    // Figures of a part: the same as those of a file of that part, and they say how many images they show.
    let conditions = Conditions::of_all(Condition::parse("price < 20").unwrap());
    let by = EvaluationConfig::default();
    done(dir, "convert all.safetensors --where price<20 --out cheap.safetensors");
    let (all_file, part_file) = (dir.join("all.safetensors"), dir.join("cheap.safetensors"));
    let of_part = Source::of_file_where(all_file.as_path().into(), &by, &conditions, &mut ()).unwrap();
    let of_file = Source::of_file(part_file.as_path().into(), &by).unwrap();
    assert_eq!(of_part.report().unwrap(), of_file.report().unwrap());
    for kind in ["map --method pca", "ranked", "cmc", "pr", "distances", "clusters", "open-set"] {
        done(dir, &format!("plot {kind} --embeddings all.safetensors --where price<20 --out part.svg"));
        let svg = std::fs::read_to_string(dir.join("part.svg")).unwrap();
        // The lines of a note may be broken anywhere.
        let words = ["5", "of", "9", "images", "of", "take"];
        let shown: Vec<&str> = svg.split(['<', '>', ' ']).filter(|word| words.contains(word)).collect();
        assert!(shown.windows(words.len()).any(|found| found == words), "{kind}: {shown:?}");
    }
    let run = [RunDirectory::open(&dir.join("run")).unwrap()];
    let metrics = |report: Report| format!("{:?}", report.evaluations);
    let every = Conditions::of_all(Condition::parse("path is not missing").unwrap());
    assert_eq!(
        metrics(pages::comparison_where(&run, &every).unwrap()),
        metrics(pages::comparison(&run).unwrap())
    );
    done(dir, "plot report run --where path!='x' --out report.html");
    let page = std::fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(
        page.contains("those of a part. 40 of 40 images of the embeddings take part: path!="),
        "{page:.3000}"
    );
    let error = refused(dir, "plot report run --where path='x' --out report.html");
    assert!(error.contains("no row of the embeddings meets the condition"), "{error}");

    // The splits of a manifest are a column of the embeddings, unless all images are of one.
    std::fs::write(dir.join("splits.csv"), "path,label,split\n0.png,a,train\n1.png,a,test\n2.png,b,test\n")
        .unwrap();
    done(dir, "embed --run run --images splits.csv --out splits.safetensors");
    let columns = EmbeddingSet::load(dir.join("splits.safetensors")).unwrap().columns;
    let split = columns.get("split").unwrap();
    let split: Vec<Option<String>> = (0..3).map(|row| split.value(row).map(|v| v.to_string())).collect();
    assert_eq!(split, ["train", "test", "test"].map(|name| Some(name.to_owned())));
    done(dir, "embed --run run --images splits.csv --split test --out test.safetensors");
    assert!(EmbeddingSet::load(dir.join("test.safetensors")).unwrap().columns.is_empty());

    // A part of a query is the same as an image of that part.
    let region = |query: &str, region: &str| {
        let line = format!("search --run run --gallery all.safetensors --query {query} -k 9 --json {region}");
        let lists: Value = serde_json::from_str(&done(dir, &line)).unwrap();
        lists[0].clone()
    };
    let whole = region("5.png", "");
    let all_of_it = region("5.png", "--region 0,0,1,1");
    assert_eq!((&all_of_it["results"], &all_of_it["region"]), (&whole["results"], &json!("0,0,1,1")));
    let picture = gallerist::data::ImageSet::open(dir.join("5.png")).unwrap().decode(0).unwrap();
    let part = picture.crop(21, 42, Size { height: 42, width: 63 }).to_rgb();
    std::fs::write(dir.join("part.bmp"), bitmap_of(&part)).unwrap();
    let wanted = region("part.bmp", "");
    for text in ["21px,42px,63px,42px", "20%,40%,60%,40%", "0.2,0.4,0.6,0.4"] {
        let found = region("5.png", &format!("--region {text}"));
        let distance = |list: &Value, at: usize| list["results"][at]["distance"].as_f64().unwrap();
        for at in 0..9 {
            assert!((distance(&found, at) - distance(&wanted, at)).abs() < 1e-4, "{text}: {found} {wanted}");
        }
        assert!((distance(&found, 0) - distance(&whole, 0)).abs() > 1e-3);
    }
    done(dir, &format!("{search} --region 20%,40%,60%,40% --html part.html"));
    assert!(
        std::fs::read_to_string(dir.join("part.html"))
            .unwrap()
            .contains("Region 20%,40%,60%,40% of the image.")
    );
    for (options, problem) in [
        ("--region 0.5,0,0.6,1", "reaches beyond the image, which is from 0 to 1"),
        ("--region 5,5", "has 2 values, a region has 4"),
        ("--region 50px,50px,60px,10px", "reaches beyond the image, which is 105 pixels wide and 105 high"),
        ("--region 0,0,1,1 --region 0,0,1,1 --region 0,0,1,1", "3 regions for 1 query image"),
    ] {
        let error = refused(dir, &format!("{search} {options}"));
        assert!(error.contains(problem), "{error}");
    }

    // Labels of a list.
    std::fs::write(dir.join("labels.txt"), "a\na\nb\nb\nb\nc\nc\nc\nc\n").unwrap();
    done(dir, "convert all.safetensors --labels labels.txt --where label='b' --out b.safetensors");
    assert_eq!(EmbeddingSet::load(dir.join("b.safetensors")).unwrap().labels.unwrap(), ["b", "b", "b"]);
    let error = refused(dir, "convert b.safetensors --labels labels.txt --out c.safetensors");
    assert!(error.contains("has 9 labels, the files have 3 rows"), "{error}");
    // The Embedding Projector: one line per row, and a header of all columns.
    done(dir, "convert all.safetensors --to projector --out projector");
    let file = |name: &str| std::fs::read_to_string(dir.join("projector").join(name)).unwrap();
    let (tensors, table) = (file("tensors.tsv"), file("metadata.tsv"));
    let row = tensors.lines().nth(3).unwrap().split('\t').map(|value| value.parse::<f32>().unwrap());
    assert_eq!((tensors.lines().count(), row.collect::<Vec<_>>()), (9, set.embeddings.row(3).to_vec()));
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "label\tpath\tproduct\tprice\tadded\tshop\tcolour");
    assert_eq!((lines.len(), lines[2]), (10, "a/b1\t1.png\tP0\t12.5\t2024-05-02\ty z\tred"));
    assert!(file("projector_config.pbtxt").contains("metadata_path: \"metadata.tsv\""));

    // A manifest with tabs gives the same columns.
    let table = std::fs::read_to_string(dir.join("list.csv")).unwrap().replace("\"y, z\"", "y z");
    std::fs::write(dir.join("list.tsv"), table.replace(',', "\t")).unwrap();
    done(dir, "embed --run run --images list.tsv --source list.csv --out tabs.safetensors");
    let tabs = EmbeddingSet::load(dir.join("tabs.safetensors")).unwrap();
    assert_eq!((tabs.columns, tabs.labels), (set.columns.clone(), set.labels.clone()));

    // Indices find the same items, with the same values.
    let values = |items: Vec<Value>| -> Vec<(Value, Value, Value)> {
        items
            .into_iter()
            .map(|mut i| (i["path"].take(), i["columns"].take(), i["group_size"].take()))
            .collect()
    };
    for kind in ["exact", "hnsw"] {
        done(dir, &format!("index build all.safetensors --kind {kind} --out all.index"));
        let in_index = search.replace("all.safetensors", "all.index");
        for options in [
            "",
            "--where price<20",
            "--where price<1",
            "--group-by product",
            "--where price<20 --group-by shop",
        ] {
            let wanted = values(results(dir, &format!("{search} {options}")));
            assert_eq!(values(results(dir, &format!("{in_index} {options}"))), wanted, "{kind} {options}");
        }
        let error = refused(dir, &format!("{in_index} --where prise<20"));
        assert!(error.contains("did you mean `price`?"), "{error}");
        let info = done(dir, "index info all.index");
        assert!(info.contains("price (number), added (date), shop (text), colour (tags)"), "{info}");
        let listed =
            done(dir, "index search all.index --queries all.safetensors -k 9 --where price=80 --json");
        let lists: Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(lists[0]["results"].as_array().unwrap().len(), 2);
        assert_eq!(lists[0]["results"][0]["columns"]["price"], 80);
        done(dir, "index remove all.index --where price=80");
        assert_eq!(results(dir, &in_index).len(), 7);
    }
}
