//! Colours, erasing, padding, white borders, Caffe's order of channels and views in evaluation.

use std::sync::Arc;

use crate::common::*;
use gallerist_data::*;

fn photo(width: u32, height: u32) -> Image {
    Image::new(width as usize, height as usize, 3, picture(width, height, 77).into_raw())
}

fn config(text: &str) -> ImageConfig {
    toml::from_str(text).unwrap()
}

fn augment(text: &str) -> AugmentConfig {
    toml::from_str(text).unwrap()
}

fn tensor(transform: &Transform, stored: &Image, index: u64) -> Vec<f32> {
    let mut out = vec![f32::NAN; transform.views() * transform.tensor_len()];
    transform.apply(stored, &mut Random::new(1, "augment", 0, index), &mut out);
    assert!(out.iter().all(|v| v.is_finite()));
    out
}

#[test]
fn caffes_networks_get_blue_first_and_255_for_white() {
    let image = photo(6, 5);
    let caffe = config("size = [5, 6]\nbgr = true\nrange = 255.0\nmean = [104.0, 117.0, 123.0]");
    let evaluation = Transform::evaluation(&caffe).unwrap();
    let stored = evaluation.fit(image.clone());
    let found = tensor(&evaluation, &stored, 0);
    for (i, pixel) in image.pixels().chunks(3).enumerate() {
        for (plane, (channel, mean)) in [(2, 104.0), (1, 117.0), (0, 123.0)].into_iter().enumerate() {
            let expected = f32::from(pixel[channel]) - mean;
            assert!((found[plane * 30 + i] - expected).abs() < 1e-4);
        }
    }
    let training = Transform::training(&caffe, &AugmentConfig::default()).unwrap();
    let same = tensor(&training, &stored, 0);
    assert!(found.iter().zip(&same).all(|(a, b)| (a - b).abs() < 1e-4));
    // Run files of before say the same, and are written the same: fingerprints depend on it.
    let plain = toml::to_string(&ImageConfig::new(28, 1)).unwrap();
    assert!(!plain.contains("range") && !plain.contains("bgr") && !plain.contains("flip_average"), "{plain}");
    assert!(Transform::evaluation(&config("size = 8\nchannels = 1\nbgr = true")).is_err());
    assert!(Transform::evaluation(&config("size = 8\nrange = 0.0")).is_err());
}

#[test]
fn white_borders_are_cut_but_for_the_padding() {
    // A dark block of 4 x 3 at (5, 2) on white, with one grey pixel far right of it.
    let mut pixels = vec![255; 16 * 10];
    for y in 2..5 {
        pixels[y * 16 + 5..y * 16 + 9].fill(10);
    }
    pixels[3 * 16 + 13] = 249;
    let image = Image::new(16, 10, 1, pixels);
    let trimmed = |trim: &str, expected: (usize, usize, usize, usize)| {
        let (left, top, width, height) = expected;
        let text = format!("size = [{height}, {width}]\nchannels = 1\n[trim]\n{trim}");
        let fitted = Transform::evaluation(&config(&text)).unwrap().fit(image.clone());
        assert_eq!(fitted, image.crop(left, top, Size { height, width }), "{trim}");
    };
    trimmed("", (5, 2, 9, 3));
    trimmed("threshold = 200", (5, 2, 4, 3));
    trimmed("threshold = 200\npadding = 2", (3, 0, 8, 7));
    trimmed("threshold = 200\npadding = 100", (0, 0, 16, 10));
    trimmed("threshold = 5", (0, 0, 16, 10));
    let one = Image::new(1, 1, 3, vec![255, 255, 0]);
    let transform = Transform::evaluation(&config("size = 1\n[trim]")).unwrap();
    assert_eq!(transform.fit(one.clone()), one);
}

#[test]
fn a_padded_window_shows_the_border_beyond_the_image() {
    let image = photo(8, 8);
    let text = "[crop]\nkind = \"padded\"\npadding = 3";
    let mut black = augment(text);
    black.border = Some(Border::Value(0.0));
    let transform = Transform::training(&config("size = 8"), &black).unwrap();
    let mut places = std::collections::HashSet::new();
    for index in 0..300 {
        let found = tensor(&transform, &image, index);
        let place = (-3i64..=3).flat_map(|y| (-3i64..=3).map(move |x| (x, y))).find(|&(left, top)| {
            (0..64).all(|i| {
                let (x, y) = (left + i % 8, top + i / 8);
                let inside = (0..8).contains(&x) && (0..8).contains(&y);
                let at = if inside { (y * 8 + x) as usize * 3 } else { 0 };
                let expected = if inside { f32::from(image.pixels()[at]) / 255.0 } else { 0.0 };
                (found[i as usize] - expected).abs() < 1e-5
            })
        });
        places.insert(place.expect("a window of the padded image"));
    }
    assert_eq!(places.len(), 49);
    let too_small = Transform::training(&config("size = 20\nstored_size = 8"), &augment(text));
    assert!(too_small.unwrap_err().to_string().starts_with("`crop.padding` must be enough for `size`"));
}

#[test]
fn erasing_wipes_one_rectangle_of_the_promised_size_as_often_as_promised() {
    let size = Size { height: 24, width: 20 };
    let image = photo(20, 24);
    let plain = Transform::training(&config("size = [24, 20]"), &AugmentConfig::default()).unwrap();
    let before = tensor(&plain, &image, 0);
    let text = "[erase]\nprobability = 0.7\nscale = [0.05, 0.3]\nratio = [0.5, 2.0]\nfill = { value = -7.0 }";
    let transform = Transform::training(&config("size = [24, 20]"), &augment(text)).unwrap();
    let mut wiped = 0;
    for index in 0..500 {
        let after = tensor(&transform, &image, index);
        assert_eq!(after, tensor(&transform, &image, index));
        let gone: Vec<usize> = (0..size.area()).filter(|&i| after[i] == -7.0).collect();
        for (i, value) in after.iter().enumerate() {
            let expected = if gone.contains(&(i % size.area())) { -7.0 } else { before[i] };
            assert_eq!(*value, expected);
        }
        let Some(&first) = gone.first() else { continue };
        wiped += 1;
        let (width, height) = (gone.iter().take_while(|&&i| i / 20 == first / 20).count(), gone.len());
        let height = height / width;
        let rectangle: Vec<usize> =
            (0..height).flat_map(|y| (0..width).map(move |x| first + y * 20 + x)).collect();
        assert_eq!(gone, rectangle);
        // Sides are rounded: the exact ones lie within half a pixel.
        let (low, high) =
            ((width as f64 - 0.5) * (height as f64 - 0.5), (width as f64 + 0.5) * (height as f64 + 0.5));
        assert!(high >= 0.05 * 480.0 && low <= 0.3 * 480.0, "{width} x {height}");
    }
    // 500 draws of 0.7: standard deviation 10.
    assert!((310..=390).contains(&wiped), "{wiped}");

    let noise = "[erase]\nprobability = 1.0\nscale = [0.3, 0.3]\nratio = [1.0, 1.0]\nfill = \"noise\"";
    let transform = Transform::training(&config("size = [24, 20]"), &augment(noise)).unwrap();
    let changed: Vec<f32> = (0..20)
        .flat_map(|index| {
            tensor(&transform, &image, index).into_iter().zip(before.clone()).collect::<Vec<_>>()
        })
        .filter(|(after, before)| after != before)
        .map(|(after, _)| after)
        .collect();
    let mean = changed.iter().sum::<f32>() / changed.len() as f32;
    let variance = changed.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / changed.len() as f32;
    // 20 x 3 x 144 values.
    assert_eq!(changed.len(), 8640);
    assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.08, "{mean} {variance}");
    assert!(Transform::training(&config("size = 8"), &augment("[erase]\nprobability = 1.5")).is_err());
}

#[test]
fn jitter_is_a_function_of_its_index_and_normalised_after() {
    let image = photo(9, 7);
    let jitter = augment("jitter = { brightness = 0.4, contrast = 0.4, saturation = 0.4, hue = 0.1 }");
    let plain = Transform::training(&config("size = [7, 9]"), &jitter).unwrap();
    let normal = config("size = [7, 9]\nmean = [0.5, 0.4, 0.3]\nstd = [0.2, 0.3, 0.4]");
    let normalised = Transform::training(&normal, &jitter).unwrap();
    let (a, b) = (tensor(&plain, &image, 4), tensor(&normalised, &image, 4));
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        let (mean, std) = [(0.5, 0.2), (0.4, 0.3), (0.3, 0.4)][i / 63];
        assert!((0.0..=1.0).contains(a) && ((a - mean) / std - b).abs() < 1e-5);
    }
    assert_eq!(a, tensor(&plain, &image, 4));
    assert_ne!(a, tensor(&plain, &image, 5));
    // All settings at 0 change nothing but rounding.
    let none = Transform::training(&config("size = [7, 9]"), &augment("[jitter]")).unwrap();
    let untouched = Transform::training(&config("size = [7, 9]"), &AugmentConfig::default()).unwrap();
    let (a, b) = (tensor(&none, &image, 0), tensor(&untouched, &image, 0));
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-6));
    assert!(Transform::training(&config("size = 8"), &augment("jitter = { hue = 0.6 }")).is_err());
}

#[test]
fn evaluation_sees_the_mirror_image_and_ten_windows_where_asked() {
    let image = photo(10, 9);
    let rows = |tensor: &[f32]| -> Vec<Vec<f32>> { tensor.chunks(27 * 3).map(<[f32]>::to_vec).collect() };
    let of = |image: &Image| {
        let transform = Transform::evaluation(&config("size = 9")).unwrap();
        tensor(&transform, image, 0)
    };
    let flip = Transform::evaluation(&config(
        "size = 9\nstored_size = [9, 10]\nview = \"center_crop\"\nflip_average = true",
    ));
    let flip = flip.unwrap();
    assert_eq!(flip.views(), 2);
    let middle = image.crop(0, 0, Size::square(9));
    assert_eq!(tensor(&flip, &image, 0), [of(&middle), of(&middle.flip_horizontal())].concat());

    let ten =
        Transform::evaluation(&config("size = 9\nstored_size = [12, 13]\nview = \"ten_crop\"")).unwrap();
    assert_eq!(ten.views(), 10);
    let stored = ten.fit(image);
    let found = tensor(&ten, &stored, 0);
    let windows = [(2, 1), (0, 0), (4, 0), (0, 3), (4, 3)].map(|(x, y)| stored.crop(x, y, Size::square(9)));
    let expected: Vec<f32> = windows
        .iter()
        .map(of)
        .chain(windows.iter().map(|w| of(&w.flip_horizontal())))
        .collect::<Vec<_>>()
        .concat();
    assert_eq!(rows(&found), rows(&expected));
    assert!(Transform::evaluation(&config("size = 9\nstored_size = 8\nview = \"ten_crop\"")).is_err());
}

#[test]
fn evaluation_sees_further_views() {
    let image = photo(9, 9);
    let of = |image: &Image| tensor(&Transform::evaluation(&config("size = 9")).unwrap(), image, 0);
    let views = "further_views = [{ rotation_degrees = 90.0 }, { scale = 1.5 }]\nflip_average = true";
    let transform = Transform::evaluation(&config(&format!("size = 9\n{views}"))).unwrap();
    assert_eq!(transform.views(), 6);
    let found = tensor(&transform, &image, 0);
    let found: Vec<&[f32]> = found.chunks(transform.tensor_len()).collect();
    let mirrored = image.flip_horizontal();
    for (half, image) in [(0, &image), (3, &mirrored)] {
        assert_eq!(found[half], of(image));
        // Clockwise: the pixel at (row, column) comes from (8 - column, row).
        let plain = of(image);
        for (place, &value) in found[half + 1].iter().enumerate() {
            let (channel, row, column) = (place / 81, place / 9 % 9, place % 9);
            let wanted = plain[channel * 81 + (8 - column) * 9 + row];
            assert!((value - wanted).abs() < 1e-4, "{place}: {value}, {wanted}");
        }
        // The middle stays, and what is half a pixel inside of the edge was cut off.
        let (magnified, middle) = (found[half + 2], 40);
        assert!((magnified[middle] - plain[middle]).abs() < 1e-5);
        assert!((magnified[41] - (plain[40] + (plain[41] - plain[40]) / 1.5)).abs() < 1e-4);
    }

    // The window of a larger stored image, and its mirror image, are those without further views.
    let crop = "size = 6\nstored_size = 9\nview = \"center_crop\"\nflip_average = true";
    let plain = tensor(&Transform::evaluation(&config(crop)).unwrap(), &image, 0);
    let more =
        Transform::evaluation(&config(&format!("{crop}\nfurther_views = [{{ scale = 2.0 }}]"))).unwrap();
    let found = tensor(&more, &image, 0);
    let (one, len) = (more.tensor_len(), plain.len());
    assert_eq!(
        (found.len(), &found[..one], &found[2 * one..3 * one]),
        (2 * len, &plain[..one], &plain[one..])
    );

    // The whole image is read at its stored size.
    let whole = "size = 6\nstored_size = 9\nfurther_views = [{}]";
    assert_eq!(Transform::evaluation(&config(whole)).unwrap().stored_size(), Size::square(9));
    for (bad, reason) in [
        ("further_views = [{ rotation_degrees = 200.0 }]", "rotation_degrees from -180 to 180"),
        ("further_views = [{ scale = 0.0 }]", "scale from 0.1 to 10"),
        ("view = \"ten_crop\"\nfurther_views = [{}]", "none with `view = \"ten_crop\"`"),
    ] {
        let error = Transform::evaluation(&config(&format!("size = 9\n{bad}"))).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn batches_of_evaluation_hold_all_views_of_each_image() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &class_folders(2, 2));
    let set = Arc::new(ImageSet::open(folder.path()).unwrap());
    let transform =
        Transform::evaluation(&config("size = 8\nstored_size = 10\nview = \"ten_crop\"")).unwrap();
    let store = Arc::new(ImageStore::new(set, transform.clone(), 0));
    let plan = BatchPlan::in_order(4, 3);
    let batches: Vec<Batch> =
        Loader::new(store.clone(), plan, LoaderOptions::evaluation(2)).unwrap().map(Result::unwrap).collect();
    assert_eq!((batches[0].len(), batches[0].views, batches[0].shape()), (3, 10, [30, 3, 8, 8]));
    let second = tensor(&transform, &store.get(1).unwrap(), 0);
    assert_eq!(batches[0].images[second.len()..2 * second.len()], second);
}
