//! Requests to the server, and its file of tags and selections.

use crate::Seeds;

pub(crate) fn write(seeds: &Seeds) {
    let calls = [
        "GET /api/v1/gallery\n",
        "GET /api/v1/labels?prefix=a&limit=3\n",
        "GET /api/v1/items?limit=2&label=a&where=price%20%3E%201&sort=price&descending=true\n",
        "GET /api/v1/items/1\n",
        "GET /api/v1/items/1/similar?k=3&label=a&view=all\n",
        "GET /thumbnails/1?size=16\n",
        "GET /api/v1/map/clusters?k=2\n",
        "GET /api/v1/failures?limit=2\n",
        "GET /api/v1/duplicates?limit=3&threshold=0.5\n",
        "GET /api/v1/heatmap?query=1&id=2\n",
        "GET /api/v1/saved/tags/x/csv\n",
        "POST /api/v1/items/lookup\n{\"paths\":[\"1.bmp\"],\"ids\":[\"1\"]}",
        "POST /api/v1/search\n{\"vectors\":[[1.0,2.0]],\"k\":3,\"where\":\"price > 1\",\"labels\":[\"a\"]}",
        "POST /api/v1/search\n{\"texts\":[\"grey\"],\"ids\":[],\"regions\":[[0.25,0.1,0.5,0.5]],\"k\":2,\"histogram\":8}",
        "POST /api/v1/saved/tags/x\n{\"add\":[\"1\",\"2\"],\"remove\":[\"3\"],\"rename\":\"y\"}",
        "DELETE /api/v1/saved/tags/x\n",
        "POST /api/v1/reload?all=true\n",
        "POST /api/v1/session\n{\"token\":\"secret\"}",
    ];
    for (i, call) in calls.iter().enumerate() {
        seeds.add("api", &format!("{i:02}"), call.as_bytes());
        let (line, body) = call.split_once('\n').expect("a line");
        let raw = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if i % 4 == 0 {
            seeds.add("http", &format!("{i:02}"), raw.as_bytes());
        }
    }
    let lists = r#"{"version":1,"tags":{"fuzz":["1","2"],"other":["18446744073709551615"]},"selections":{"a":["3"]}}"#;
    seeds.add("tags", "lists", lists.as_bytes());
    seeds.add("tags", "version", br#"{"version":2,"colours":{}}"#);
    let chunked = "POST /api/v1/search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n10\r\n{\"vectors\":[[1,2\r\n4\r\n]]}\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    seeds.add("http", "headers", b"GET /health HTTP/1.1\r\nHost localhost\r\n\r\n");
    seeds.add("http", "chunked", chunked.as_bytes());
    let picture = {
        let mut bytes = std::io::Cursor::new(Vec::new());
        let picture = image::GrayImage::from_pixel(3, 2, image::Luma([9]));
        picture.write_to(&mut bytes, image::ImageFormat::Png).expect("memory");
        bytes.into_inner()
    };
    let part = |name: &str, file: Option<&str>, content: &[u8]| {
        let file = file.map_or(String::new(), |file| format!("; filename=\"{file}\""));
        let head = format!("--X\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        [head.as_bytes(), content, b"\r\n"].concat()
    };
    let end: &[u8] = b"--X--\r\n";
    let search = [b"0", &part("image", Some("a.png"), &picture)[..], &part("k", None, b"2"), end].concat();
    seeds.add("multipart", "search", &search);
    let fields =
        [part("label", None, b"a"), part("where", None, b"price > 1"), part("region", None, b"0,0,1,1")];
    seeds.add(
        "multipart",
        "fields",
        &[b"0", &part("image", Some("a"), &picture)[..], &fields.concat(), end].concat(),
    );
    let add = [
        b"1",
        &part("image", Some("new.png"), &picture)[..],
        &part("path", None, b"new/1.png"),
        &part("label", None, b"z"),
        &part("replace", None, b"true"),
        end,
    ];
    seeds.add("multipart", "item", &add.concat());
}
