//! Searching with a region of an image.

use crate::common::{Fixture, Running, ids, options, square};
use gallerist_report::Picture;
use serde_json::json;

/// Two halves of different colours, as PNG: red on the left, blue on the right.
fn halves(width: u32, height: u32) -> Vec<u8> {
    let pixel = |x: u32| if x < width / 2 { [250, 30, 20] } else { [20, 40, 250] };
    let pixels: Vec<u8> = (0..height).flat_map(|_| (0..width).flat_map(pixel)).collect();
    Picture::from_pixels(width, height, 3, &pixels).unwrap().bytes().to_vec()
}

fn upload(server: &Running, image: &[u8], region: Option<&str>) -> crate::common::Response {
    let mut fields = vec![("image", Some("a.png"), image), ("k", None, b"3".as_slice())];
    fields.extend(region.map(|region| ("region", None, region.as_bytes())));
    server.post_form("/api/v1/search/upload", &[], &fields)
}

#[test]
fn a_region_of_an_upload_is_searched_as_the_cropped_image() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let results = |image: &[u8], region| ids(&upload(&server, image, region).json());
    let image = halves(200, 100);
    let (red, blue) = (square([250, 30, 20], 50), square([20, 40, 250], 50));
    assert_eq!(results(&image, Some("0,0,0.5,1")), results(&red, None));
    assert_eq!(results(&image, Some("0.55,0.2,0.4,0.5")), results(&blue, None));
    assert_ne!(results(&image, Some("0,0,0.5,1")), results(&image, None));
    // An empty region is the whole image.
    assert_eq!(results(&image, Some("")), results(&image, None));
    assert_eq!(results(&image, Some("0,0,1,1")), results(&image, None));
}

#[test]
fn a_region_is_of_the_upright_image() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    // Orientation 6 turns the stored rows by 90 degrees clockwise: the left half of the file is the top of the picture.
    let file = halves(200, 100);
    let exif = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let mut chunk = b"eXIf".to_vec();
    chunk.extend(exif);
    let crc = crc(&chunk);
    let mut turned = file[..33].to_vec();
    turned.extend((exif.len() as u32).to_be_bytes());
    turned.extend(&chunk);
    turned.extend(crc.to_be_bytes());
    turned.extend(&file[33..]);
    let results = |image: &[u8], region| ids(&upload(&server, image, region).json());
    let (red, blue) = (square([250, 30, 20], 50), square([20, 40, 250], 50));
    assert_eq!(results(&turned, Some("0,0,1,0.5")), results(&red, None));
    assert_eq!(results(&turned, Some("0,0.5,1,0.5")), results(&blue, None));
}

fn crc(bytes: &[u8]) -> u32 {
    let step =
        |crc: u32, byte: &u8| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 }
            })
        };
    !bytes.iter().fold(u32::MAX, step)
}

#[test]
fn a_region_of_an_item_is_embedded_from_its_image_and_the_item_is_no_result() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let item = server.items()[0].0.clone();
    // The squares have one colour: every region of one is embedded as all of it.
    let whole = ids(&server.json(&format!("/api/v1/items/{item}/similar?k=5")));
    let part = ids(&server.json(&format!("/api/v1/items/{item}/similar?k=5&region=0.1,0.1,0.3,0.2")));
    assert_eq!(part, whole);
    let body = json!({"ids": [item], "regions": [[0.1, 0.1, 0.3, 0.2]], "k": 5});
    assert_eq!(ids(&server.post_json("/api/v1/search", &body).json()), whole);
    let form = [("image", Some("a.png"), square([250, 30, 20], 50)), ("id", None, item.clone().into_bytes())];
    let form: Vec<_> = form.iter().map(|(name, file, content)| (*name, *file, content.as_slice())).collect();
    let both = ids(&server.post_form("/api/v1/search/upload", &[], &form).json());
    let parts: Vec<_> = form
        .iter()
        .copied()
        .chain([("region", None, b"".as_slice()), ("region", None, b"0,0,0.5,0.5")])
        .collect();
    assert_eq!(ids(&server.post_form("/api/v1/search/upload", &[], &parts).json()), both);
}

#[test]
fn a_bad_region_is_refused_with_what_to_do() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let item = server.items()[0].0.clone();
    let image = square([250, 30, 20], 50);
    for region in ["1,2", "a", "0,0,0,1", "0.5,0,0.6,1", "-0.1,0,0.5,0.5", "NaN,0,1,1", "0,0,inf,1"] {
        let answer = server.get(&format!("/api/v1/items/{item}/similar?region={region}"));
        assert_eq!(answer.status, 400, "{region}");
        assert!(answer.error().contains("left, top, width and height"), "{}", answer.error());
        assert_eq!(upload(&server, &image, Some(region)).status, 400, "{region}");
    }
    let body = json!({"ids": [item], "regions": [[0.5, 0.5, 0.6, 0.1]]});
    let answer = server.post_json("/api/v1/search", &body);
    assert_eq!(answer.status, 400);
    assert!(answer.error().contains("reaches beyond the image"), "{}", answer.error());
    let body = json!({"ids": [item], "regions": [null, [0.0, 0.0, 1.0, 1.0]]});
    assert!(server.post_json("/api/v1/search", &body).error().contains("2 regions for 1 ids"));
}
