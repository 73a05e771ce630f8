//! Weights, ONNX models, and the files of runs, from the fixtures and the files that the program has built in.

use gallerist_util::protobuf::Message;

use crate::{Seeds, fixture};

pub(crate) fn write(seeds: &Seeds) {
    for file in ["code-legacy.pth", "legacy.pth", "module.pth", "zip.pth", "plain.pkl", "foreign.zip"] {
        seeds.fixture("weights", &format!("fixtures/weights/{file}"));
    }
    for (name, tensors) in TRANSFORMERS {
        seeds.add("weights", name, &safetensors(tensors));
    }
    pickles(seeds);
    let of_run = "fixtures/compat/0.1.0";
    seeds.fixture("run_file", &format!("{of_run}/run/config.toml"));
    for name in ["cub200-mobilenetv2", "market1501-mobilenetv2", "omniglot", "smoke"] {
        seeds.fixture("run_file", &format!("configs/{name}.toml"));
    }
    seeds.add("setting", "some", b"loss.margin=0.2\ntrain.steps=10\nimage.size=[28, 28]\naugment.flip=0.25");
    seeds.add("setting", "unknown", b"loss.0.kind=\"triplet\"");
    seeds.fixture("log", &format!("{of_run}/run/log.jsonl"));
    seeds.add("job", "done", &job());
    seeds.fixture("ranges", "fuzz/corpus/ranges/measured");
    for (place, file) in [
        (1, "run/log.jsonl"),
        (2, "run/config.toml"),
        (3, "f32.safetensors"),
        (4, "exact.index"),
        (5, "run.npy"),
    ] {
        let bytes = fixture(&format!("{of_run}/{file}"));
        seeds.add("info", &file.replace('/', "-"), &[&[place][..], &bytes].concat());
    }
    let (vit, metrics) = (safetensors(TRANSFORMERS[0].1), metrics());
    for (place, name, bytes) in [
        (0, "metrics", metrics.as_bytes()),
        (0, "ranges", &fixture("fuzz/corpus/ranges/measured")),
        (3, "checkpoint", &checkpoint()),
        (3, "weights", &vit),
        (6, "zip.pth", &fixture("fixtures/weights/zip.pth")),
        (8, "model.onnx", &fixture("crates/gallerist-onnx/fixtures/rows.onnx")),
        (9, "tags", &fixture(&format!("{of_run}/exact.index.tags.json"))),
        (10, "map", &fixture(&format!("{of_run}/f32.safetensors"))),
        (11, "shard", &fixture("fuzz/corpus/shards/9ea3cad2ea6d")),
    ] {
        seeds.add("info", name, &[&[place][..], bytes].concat());
    }
    seeds.add("preprocessor", "clip", br#"{"do_resize":true,"size":{"shortest_edge":224},"crop_size":{"height":224,"width":224},"image_mean":[0.48,0.45,0.4],"image_std":[0.26,0.26,0.27],"do_rescale":true,"rescale_factor":0.00392}"#);
    seeds.add("preprocessor", "timm", br#"{"architecture":"vit_base_patch16_224","pretrained_cfg":{"input_size":[3,224,224],"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5]}}"#);
    for model in ["rows", "tokens", "last", "words", "two", "unknown", "outside"] {
        seeds.fixture("onnx", &format!("crates/gallerist-onnx/fixtures/{model}.onnx"));
    }
    seeds.add("checkpoint", "tiny", &checkpoint());
    let words = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":0,"content":"<pad>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":{"type":"Lowercase"},"pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel","vocab":{"<pad>":0,"a":1,"bird":2,"<unk>":3},"unk_token":"<unk>"}}"#;
    seeds.add("tokenizer", "words", words.as_bytes());
    seeds.fixture("tokenizer", "crates/gallerist-onnx/fixtures/text/tokenizer.json");
    let pairs = words.replace(
        r#"{"type":"WordLevel","vocab":{"<pad>":0,"a":1,"bird":2,"<unk>":3},"unk_token":"<unk>"}"#,
        r#"{"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"vocab":{"<pad>":0,"a":1,"b":2,"ab":3,"<unk>":4},"merges":["a b"]}"#,
    );
    seeds.add("tokenizer", "pairs", pairs.as_bytes());
    let space = "rounds = 2\n[space]\n\"optimizer.lr\" = { low = 1e-4, high = 1e-2, log = true }\n\"loss.margin\" = [0.1, 0.2]\n";
    seeds.add("space", "two", space.as_bytes());
    seeds.fixture("space", "experiments/tune/omniglot.toml");
    for name in ["papers/nra-figure-3-right", "papers/srt-figure-3a", "comparisons/rll-heads-steps"] {
        seeds.fixture("experiment", &format!("experiments/{name}.toml"));
    }
    seeds.add("onnx", "empty", &Message::default().int(1, 8).message(7, Message::default()).into_bytes());
    for (target, path) in TABLES {
        seeds.fixture(target, &format!("crates/gallerist-retrieval/tests/tables/{path}"));
    }
    seeds.fixture("experiment", "experiments/papers/ice-figure-1.toml");
}

const TABLES: [(&str, &str); 9] = [
    ("arrow", "polars.arrow"),
    ("arrow", "pyarrow-lz4.feather"),
    ("arrow", "pyarrow-none.feather"),
    ("arrow", "pyarrow-stream.arrow"),
    ("arrow", "pyarrow-zstd.feather"),
    ("parquet", "polars.parquet"),
    ("parquet", "pyarrow-none.parquet"),
    ("parquet", "pyarrow-snappy.parquet"),
    ("parquet", "pyarrow-zstd.parquet"),
];

type Tensors = &'static [(&'static str, &'static [usize])];

/// Transformers of one block by the names of several programs.
const TRANSFORMERS: [(&str, Tensors); 3] = [
    (
        "vit-timm",
        &[
            ("cls_token", &[1, 1, 2]),
            ("pos_embed", &[1, 5, 2]),
            ("patch_embed.proj.weight", &[2, 3, 2, 2]),
            ("blocks.0.norm1.weight", &[2]),
            ("blocks.0.attn.qkv.weight", &[6, 2]),
            ("blocks.0.ls1.gamma", &[2]),
            ("blocks.0.mlp.w12.weight", &[4, 2]),
            ("blocks.0.mlp.w3.weight", &[2, 2]),
        ],
    ),
    (
        "vit-dinov3",
        &[
            ("cls_token", &[1, 1, 2]),
            ("storage_tokens", &[1, 4, 2]),
            ("patch_embed.proj.weight", &[2, 3, 2, 2]),
            ("blocks.0.norm1.weight", &[2]),
            ("blocks.0.attn.qkv.weight", &[6, 2]),
            ("blocks.0.attn.q_bias", &[2]),
            ("blocks.0.attn.v_bias", &[2]),
            ("blocks.0.gamma_1", &[2]),
            ("blocks.0.mlp.w1.weight", &[2, 2]),
            ("blocks.0.mlp.w2.weight", &[2, 2]),
            ("blocks.0.mlp.w3.weight", &[2, 2]),
        ],
    ),
    (
        "vit-siglip",
        &[
            ("vision_model.embeddings.patch_embedding.weight", &[2, 3, 2, 2]),
            ("vision_model.embeddings.position_embedding.weight", &[4, 2]),
            ("vision_model.encoder.layers.0.layer_norm1.weight", &[2]),
            ("vision_model.encoder.layers.0.self_attn.q_proj.weight", &[2, 2]),
            ("vision_model.encoder.layers.0.self_attn.k_proj.weight", &[2, 2]),
            ("vision_model.encoder.layers.0.self_attn.v_proj.weight", &[2, 2]),
            ("vision_model.encoder.layers.0.mlp.fc1.weight", &[4, 2]),
            ("vision_model.encoder.layers.0.mlp.fc2.weight", &[2, 4]),
            ("vision_model.head.probe", &[1, 1, 2]),
            ("vision_model.head.attention.in_proj_weight", &[6, 2]),
        ],
    ),
];

/// A file of tensors of zeros.
fn safetensors(tensors: Tensors) -> Vec<u8> {
    let mut end = 0;
    let entries = tensors.iter().map(|(name, shape)| {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        format!(r#""{name}":{{"dtype":"F32","shape":{shape:?},"data_offsets":[{start},{end}]}}"#)
    });
    let header = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; end]].concat()
}

/// A checkpoint of one tensor in each group.
fn checkpoint() -> Vec<u8> {
    let groups = ["network.a", "loss.b", "optimizer.a.momentum", "state.means"];
    let tensors: Vec<String> = groups
        .iter()
        .enumerate()
        .map(|(i, name)| {
            format!(r#""{name}":{{"dtype":"F32","shape":[2],"data_offsets":[{},{}]}}"#, 8 * i, 8 * i + 8)
        })
        .collect();
    let header = serde_json::json!({
        "format": "gallerist-checkpoint-1",
        "version": "0.1.0",
        "step": 3,
        "config": "[train]\nsteps = 10\n[data]\ntrain = [\"a\"]",
        "fingerprint": "b92e",
        "input": [3, 8, 8],
        "best": { "metric": "map@r", "value": 0.5, "step": 2 },
        "optimizer_counters": { "step": 3 },
        "optimizer_ranks": { "a": 1 },
        "seconds": 1.5,
        "device": "cpu",
        "data": "ab",
        "sha256": "0".repeat(64),
    });
    let header = serde_json::Value::from(header.to_string());
    let header = format!(r#"{{"__metadata__":{{"gallerist":{header}}},{}}}"#, tensors.join(","));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 32]].concat()
}

/// Metrics, usage and log of a job of three steps.
fn job() -> Vec<u8> {
    let usage = r#"{"peak_memory_mib":244.5}"#;
    let log = String::from_utf8(fixture("fixtures/compat/0.1.0/run/log.jsonl")).expect("text");
    let steps: Vec<&str> = log.lines().take(3).collect();
    [metrics(), usage.to_owned(), steps.join("\n")].join("\u{1E}").into_bytes()
}

/// Test metrics of a run.
fn metrics() -> String {
    r#"{"protocol":"every image against the rest","metric":"cosine","metrics":{"recall@1":0.7187405159332322,"map@r":0.333},"queries":9,"gallery":9,"queries_without_match":0,"ties":2,"tie_bounds":{"map":{"low":0.4386292943284683,"high":0.4386293963728152}},"zero_rows":0,"notes":[],"clustering":{"nmi":0.83,"ami":0.64,"pair_f1":0.44,"mean_squared_distance":0.34,"kmeans":{"clusters":3,"starts":1,"iterations":20,"start":"rows","seed":0}},"checkpoint":"best","step":3,"model":"82c6","broken_images":0,"class_overlap":{"shared":0,"test":3}}"#.to_owned()
}

/// Pickles of a tensor, by protocol 2 as PyTorch writes it.
fn pickles(seeds: &Seeds) {
    let tensor = |storage: &str, offset: u8, size: u8, stride: u8| {
        let mut bytes =
            b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
                .to_vec();
        bytes.extend(storage.bytes());
        bytes.extend(b"X\x03\0\0\0cpuK\x10tQ");
        bytes.extend([b'K', offset, b'K', size, 0x85, b'K', stride, 0x85, 0x89]);
        bytes.extend(b"ccollections\nOrderedDict\n)RtR");
        bytes
    };
    let dict = |items: &[(&str, Vec<u8>)]| {
        let mut bytes = b"\x80\x02}q\0(".to_vec();
        for (name, value) in items {
            bytes.push(b'X');
            bytes.extend((name.len() as u32).to_le_bytes());
            bytes.extend(name.bytes());
            bytes.extend(value);
        }
        bytes.extend(b"u.");
        bytes
    };
    seeds.add("pickle", "one", &dict(&[("weight", tensor("0", 0, 4, 1))]));
    seeds.add("pickle", "views", &dict(&[("a", tensor("0", 2, 4, 2)), ("b", tensor("1", 0, 16, 1))]));
    seeds.add(
        "pickle",
        "nested",
        &dict(&[(
            "state_dict",
            dict(&[("w", tensor("0", 0, 2, 1))])[2..].strip_suffix(b".").expect("the end").to_vec(),
        )]),
    );
    seeds.add("pickle", "code", b"\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R.");
    // Inputs of faults that reading the code has found; they belong to the regressions.
    let mut text = b"\x80\x02X\0\x40\0\0".to_vec();
    text.extend([b'a'; 1 << 14]);
    text.extend(b"q\0");
    text.extend(b"h\0".repeat(1 << 13));
    text.push(b'.');
    seeds.add("pickle", "bomb-text", &text);
    let mut cycle = b"\x80\x02}q\0(".to_vec();
    cycle.extend(b"X\0\0\0\0h\0".repeat(40));
    cycle.extend(b"u.");
    seeds.add("pickle", "bomb-cycle", &cycle);
    seeds.add(
        "pickle",
        "memo",
        b"\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94(\x8c\x01a\x94]\x94(h\x01K\x01G?\xf0\0\0\0\0\0\0\x88\x89Neu.",
    );
}
