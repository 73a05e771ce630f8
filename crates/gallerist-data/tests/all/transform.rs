//! Resizing, normalisation, warps and crops.

use crate::common::*;
use gallerist_data::*;

/// Row-major `f64` samples of one channel.
fn channel(image: &Image, c: usize) -> Vec<f64> {
    image.pixels().iter().skip(c).step_by(image.channels()).map(|&v| f64::from(v)).collect()
}

fn rgb(width: u32, height: u32) -> Image {
    let picture = picture(width, height, 77);
    Image::new(width as usize, height as usize, 3, picture.into_raw())
}

/// A smooth grey picture without symmetry, and its value at any place.
fn wave(x: f64, y: f64) -> f64 {
    128.0 + 60.0 * (x / 7.0).sin() + 50.0 * (y / 9.0 + 0.4).cos()
}

fn wave_image(width: usize, height: usize) -> Image {
    let pixels =
        (0..width * height).map(|i| wave((i % width) as f64, (i / width) as f64).round() as u8).collect();
    Image::new(width, height, 1, pixels)
}

fn tensor(transform: &Transform, stored: &Image, index: u64) -> Vec<f32> {
    let mut out = vec![f32::NAN; transform.tensor_len()];
    transform.apply(stored, &mut Random::new(1, "augment", 0, index), &mut out);
    assert!(out.iter().all(|v| v.is_finite()));
    out
}

#[test]
fn resizing_is_a_triangle_filter_as_wide_as_the_reduction() {
    let image = rgb(37, 29);
    for (width, height) in [(10, 8), (36, 28), (80, 61), (1, 1), (37, 29), (37, 5)] {
        let size = Size { height, width };
        let resized = image.resize(size);
        // The filter's definition, in f64, one axis after the other.
        let weights = |from: usize, to: usize| -> Vec<Vec<f64>> {
            let step = from as f64 / to as f64;
            let radius = step.max(1.0);
            (0..to)
                .map(|i| {
                    let centre = (i as f64 + 0.5) * step;
                    let raw: Vec<f64> = (0..from)
                        .map(|j| (1.0 - ((j as f64 + 0.5 - centre) / radius).abs()).max(0.0))
                        .collect();
                    let sum: f64 = raw.iter().sum();
                    raw.iter().map(|w| w / sum).collect()
                })
                .collect()
        };
        let (across, down) = (weights(37, width), weights(29, height));
        for c in 0..3 {
            let source = channel(&image, c);
            let found = channel(&resized, c);
            for y in 0..height {
                for x in 0..width {
                    let exact: f64 = (0..29)
                        .map(|j| {
                            let row: f64 = (0..37).map(|i| across[x][i] * source[j * 37 + i]).sum();
                            row * down[y][j]
                        })
                        .sum();
                    // Rounded to bytes after each of the two passes.
                    let off = (found[y * width + x] - exact).abs();
                    assert!(off <= 1.1, "{size}: {off} at ({x}, {y}) of channel {c}");
                }
            }
        }
    }
}

#[test]
fn grey_is_the_luma_and_back_is_three_equal_channels() {
    let image = Image::new(4, 1, 3, vec![255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255]);
    let grey = image.to_gray();
    assert_eq!(grey.pixels(), [76, 150, 29, 255]);
    assert_eq!(grey.to_rgb().pixels()[..6], [76, 76, 76, 150, 150, 150]);
}

#[test]
fn quarter_turns_are_counter_clockwise() {
    let image = Image::new(3, 2, 1, vec![1, 2, 3, 4, 5, 6]);
    let turned = image.rotate(1);
    assert_eq!((turned.width(), turned.height()), (2, 3));
    assert_eq!(turned.pixels(), [3, 6, 2, 5, 1, 4]);
    assert_eq!(image.rotate(2).pixels(), [6, 5, 4, 3, 2, 1]);
    assert_eq!(image.rotate(3).pixels(), [4, 1, 5, 2, 6, 3]);
    assert_eq!(turned.rotate(3), image);
    assert_eq!(image.flip_horizontal().pixels(), [3, 2, 1, 6, 5, 4]);
}

#[test]
fn evaluation_normalises_planes_and_inverts() {
    let config =
        ImageConfig { mean: vec![0.5, 0.25, 0.0], std: vec![0.5, 1.0, 2.0], ..ImageConfig::new(2, 3) };
    let pixels = vec![0, 51, 255, 102, 0, 0, 255, 255, 0, 51, 51, 51];
    let image = Image::new(2, 2, 3, pixels.clone());
    for invert in [false, true] {
        let transform = Transform::evaluation(&ImageConfig { invert, ..config.clone() }).unwrap();
        let out = tensor(&transform, &transform.fit(image.clone()), 0);
        for (i, value) in out.iter().enumerate() {
            let (c, at) = (i / 4, i % 4);
            let v = f64::from(pixels[at * 3 + c]) / 255.0;
            let v = if invert { 1.0 - v } else { v };
            let exact = (v - f64::from(config.mean[c])) / f64::from(config.std[c]);
            assert!((f64::from(*value) - exact).abs() < 1e-6);
        }
    }
}

#[test]
fn evaluation_scales_once_and_the_centre_crop_is_the_middle() {
    let image = wave_image(50, 40);
    let mut config = ImageConfig {
        size: Size { height: 12, width: 10 },
        stored_size: Some(Size { height: 20, width: 16 }),
        ..ImageConfig::new(1, 1)
    };
    let whole = Transform::evaluation(&config).unwrap();
    assert_eq!(whole.stored_size(), config.size);
    assert_eq!(whole.fit(image.clone()), image.resize(config.size));
    config.view = View::CenterCrop;
    let centre = Transform::evaluation(&config).unwrap();
    assert_eq!(centre.stored_size(), Size { height: 20, width: 16 });
    let stored = centre.fit(image);
    let out = tensor(&centre, &stored, 0);
    let cut = stored.crop(3, 4, config.size);
    for (v, p) in out.iter().zip(cut.pixels()) {
        assert!((v * 255.0 - f32::from(*p)).abs() < 1e-3);
    }
}

#[test]
fn a_cropping_fit_keeps_the_aspect_ratio() {
    // A disc stays round.
    let (w, h) = (90usize, 60usize);
    let inside = |x: usize, y: usize| (x as f64 - 44.5).powi(2) + (y as f64 - 29.5).powi(2) < 400.0;
    let pixels = (0..w * h).map(|i| if inside(i % w, i / w) { 0 } else { 255 }).collect();
    let config = ImageConfig { fit: Fit::Crop, ..ImageConfig::new(30, 1) };
    let stored = Transform::evaluation(&config).unwrap().fit(Image::new(w, h, 1, pixels));
    let dark = |(x, y): (usize, usize)| stored.pixels()[y * 30 + x] < 128;
    let across = (0..30).filter(|&x| dark((x, 15))).count();
    let down = (0..30).filter(|&y| dark((15, y))).count();
    assert_eq!(across, 20);
    assert_eq!(down, 20);
}

#[test]
fn without_changes_training_sees_what_evaluation_sees() {
    let image = wave_image(28, 28);
    let config = ImageConfig::new(28, 1);
    let training = Transform::training(&config, &AugmentConfig::default()).unwrap();
    let evaluation = Transform::evaluation(&config).unwrap();
    let (a, b) = (tensor(&training, &image, 0), tensor(&evaluation, &image, 0));
    for (a, b) in a.iter().zip(&b) {
        assert!((a - b).abs() < 1e-5, "{a} and {b}");
    }
    // From a larger stored image it is close to a filtered reduction.
    let large = wave_image(105, 105);
    let config = ImageConfig { stored_size: Some(Size::square(105)), ..config };
    let training = Transform::training(&config, &AugmentConfig::default()).unwrap();
    let (a, b) = (tensor(&training, &large, 0), large.resize(Size::square(28)));
    for (i, (a, b)) in a.iter().zip(b.pixels()).enumerate() {
        // At the edge the warp blends with the border, the reduction does not.
        if (1..27).contains(&(i % 28)) && (1..27).contains(&(i / 28)) {
            assert!((a * 255.0 - f32::from(*b)).abs() < 4.0, "{a} and {b} at {i}");
        }
    }
}

#[test]
fn a_fixed_rotation_or_scale_is_the_map_it_says() {
    // Rotation and scale are drawn from a range; a range of one scale is that
    // scale, and the drawn rotation is found again from the generator.
    let side = 41;
    let image = wave_image(side, side);
    let centre = (side as f64 - 1.0) / 2.0;
    let augment = AugmentConfig { rotation_degrees: 90.0, scale: [1.5, 1.5], ..AugmentConfig::default() };
    let transform = Transform::training(&ImageConfig::new(side, 1), &augment).unwrap();
    for index in 0..5 {
        let out = tensor(&transform, &image, index);
        let angle = Random::new(1, "augment", 0, index).between(-90.0, 90.0).to_radians();
        for y in 0..side {
            for x in 0..side {
                let (u, v) = (x as f64 - centre, y as f64 - centre);
                // A picture turned by the angle is looked up at minus the angle.
                let sx = centre + (angle.cos() * u + angle.sin() * v) / 1.5;
                let sy = centre + (-angle.sin() * u + angle.cos() * v) / 1.5;
                let inside = 0.0..=side as f64 - 1.0;
                if inside.contains(&sx) && inside.contains(&sy) {
                    let off = (f64::from(out[y * side + x]) * 255.0 - wave(sx, sy)).abs();
                    // Rounding to bytes, and bilinear interpolation: second
                    // derivative 60 / 49 over 8.
                    assert!(off < 0.9, "{off} at ({x}, {y})");
                }
            }
        }
    }
}

#[test]
fn the_border_is_white_for_drawings_and_the_edge_for_photographs() {
    let augment = AugmentConfig { scale: [0.5, 0.5], ..AugmentConfig::default() };
    let corners =
        |out: &[f32], side: usize| [out[0], out[side - 1], out[side * (side - 1)], out[side * side - 1]];
    let black = Image::new(16, 16, 1, vec![0; 256]);
    let make = |config: &ImageConfig, border| {
        Transform::training(config, &AugmentConfig { border, ..augment.clone() }).unwrap()
    };
    let grey = ImageConfig::new(16, 1);
    assert_eq!(corners(&tensor(&make(&grey, None), &black, 0), 16), [1.0; 4]);
    let value = Some(Border::Value(0.25));
    assert_eq!(corners(&tensor(&make(&grey, value), &black, 0), 16), [0.25; 4]);
    let inverted = ImageConfig { invert: true, ..grey.clone() };
    assert_eq!(corners(&tensor(&make(&inverted, None), &black, 0), 16), [0.0; 4]);
    let replicate = Some(Border::Replicate);
    assert_eq!(corners(&tensor(&make(&grey, replicate), &black, 0), 16), [0.0; 4]);
    // The default for colour: each corner has the colour of its own corner.
    let image = rgb(16, 16);
    let out = tensor(&make(&ImageConfig::new(16, 3), None), &image, 0);
    for c in 0..3 {
        let source: Vec<f32> = channel(&image, c).iter().map(|&v| v as f32 / 255.0).collect();
        let found = corners(&out[c * 256..(c + 1) * 256], 16);
        for (a, b) in found.iter().zip(corners(&source, 16)) {
            assert!((a - b).abs() < 1e-5, "{a} and {b}");
        }
    }
}

#[test]
fn a_constant_image_stays_constant_under_any_warp() {
    let augment = AugmentConfig {
        rotation_degrees: 180.0,
        scale: [0.3, 3.0],
        shear_degrees: 40.0,
        shift: 0.5,
        flip: 0.5,
        crop: CropConfig::Area { scale: [0.08, 1.0], ratio: [0.75, 1.33] },
        border: Some(Border::Value(0.6)),
        ..AugmentConfig::default()
    };
    let config = ImageConfig {
        size: Size { height: 24, width: 12 },
        stored_size: Some(Size { height: 50, width: 70 }),
        ..ImageConfig::new(1, 3)
    };
    let transform = Transform::training(&config, &augment).unwrap();
    let image = Image::new(70, 50, 3, vec![153; 70 * 50 * 3]);
    for index in 0..50 {
        for v in tensor(&transform, &image, index) {
            assert!((v - 0.6).abs() < 1e-5, "{v}");
        }
    }
}

#[test]
fn a_flip_of_certainty_is_the_mirror_image() {
    let image = wave_image(20, 20);
    let augment = AugmentConfig { flip: 1.0, ..AugmentConfig::default() };
    let config = ImageConfig::new(20, 1);
    let flipped = tensor(&Transform::training(&config, &augment).unwrap(), &image, 3);
    let mirror = tensor(&Transform::evaluation(&config).unwrap(), &image.flip_horizontal(), 3);
    for (a, b) in flipped.iter().zip(&mirror) {
        assert!((a - b).abs() < 1e-5);
    }
}

#[test]
fn random_windows_are_pieces_of_the_stored_image() {
    let image = wave_image(32, 32);
    let config = ImageConfig { stored_size: Some(Size::square(32)), ..ImageConfig::new(28, 1) };
    let augment = AugmentConfig { crop: CropConfig::Window, ..AugmentConfig::default() };
    let transform = Transform::training(&config, &augment).unwrap();
    let mut places = std::collections::HashSet::new();
    for index in 0..60 {
        let out = tensor(&transform, &image, index);
        let place = (0..25).find(|p| {
            let piece = image.crop(p % 5, p / 5, Size::square(28));
            out.iter().zip(piece.pixels()).all(|(a, b)| (a * 255.0 - f32::from(*b)).abs() < 1e-2)
        });
        places.insert(place.expect("a window is found in the image"));
    }
    assert!(places.len() > 15, "60 windows at {} of 25 places", places.len());
}

#[test]
fn run_files_give_every_setting_and_reject_unknown_ones() {
    let text = "size = [256, 128]\nchannels = 1\ninvert = true\nstored_size = 300\nfit = \"crop\"\nview = \"center_crop\"\nmean = [0.1]";
    let config: ImageConfig = toml::from_str(text).unwrap();
    assert_eq!(config.size, Size { height: 256, width: 128 });
    assert_eq!(config.stored(), Size::square(300));
    assert_eq!((config.fit, config.view, &config.std), (Fit::Crop, View::CenterCrop, &vec![1.0]));
    let again: ImageConfig = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
    assert_eq!(again, config);
    let plain: ImageConfig = toml::from_str("size = 28").unwrap();
    assert_eq!(plain, ImageConfig::new(28, 3));
    assert!(toml::from_str::<ImageConfig>("size = 28\nsiez = 3").is_err());

    let text = "rotation_degrees = 10\nflip = 0.5\nborder = { value = 0.5 }\ncrop = { kind = \"side\", scale = [0.6, 1] }";
    let augment: AugmentConfig = toml::from_str(text).unwrap();
    assert_eq!(augment.border, Some(Border::Value(0.5)));
    let ratio = [0.75, 4.0 / 3.0];
    assert_eq!(augment.crop, CropConfig::Side { scale: [0.6, 1.0], ratio });
    let again: AugmentConfig = toml::from_str(&toml::to_string(&augment).unwrap()).unwrap();
    assert_eq!(again, augment);
    assert_eq!(toml::from_str::<AugmentConfig>("").unwrap(), AugmentConfig::default());
    let border: AugmentConfig = toml::from_str("border = \"replicate\"").unwrap();
    assert_eq!(border.border, Some(Border::Replicate));
    assert!(toml::from_str::<AugmentConfig>("rotation = 3").is_err());
    assert!(toml::from_str::<AugmentConfig>("crop = { kind = \"side\", skale = [0.6, 1] }").is_err());

    let sampler: SamplerConfig =
        toml::from_str("kind = \"n_group\"\nclasses_per_batch = 16\nimages_per_class = 8").unwrap();
    let again: SamplerConfig = toml::from_str(&toml::to_string(&sampler).unwrap()).unwrap();
    assert_eq!(again, sampler);
    assert!(toml::from_str::<SamplerConfig>("kind = \"random\"\nbatch_size = 3\nx = 1").is_err());
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let image = ImageConfig::new(28, 1);
    let refused = |config: &ImageConfig, augment: AugmentConfig| {
        Transform::training(config, &augment).unwrap_err().to_string()
    };
    let augment = AugmentConfig::default();
    assert_eq!(
        refused(&ImageConfig { channels: 2, ..image.clone() }, augment.clone()),
        "`channels` must be 1 or 3, not 2"
    );
    assert_eq!(
        refused(&ImageConfig { std: vec![0.0], ..image.clone() }, augment.clone()),
        "`std` must be above 0, not 0"
    );
    assert_eq!(
        refused(&ImageConfig { mean: vec![0.0; 3], ..image.clone() }, augment.clone()),
        "`mean` must be one value, or one per channel, not 3"
    );
    assert_eq!(
        refused(&image, AugmentConfig { flip: 1.5, ..augment.clone() }),
        "`flip` must be a probability, not 1.5"
    );
    assert_eq!(
        refused(&image, AugmentConfig { shift: f32::NAN, ..augment.clone() }),
        "`shift` must be between 0 and 1, not NaN"
    );
    assert_eq!(
        refused(&image, AugmentConfig { scale: [1.2, 0.8], ..augment.clone() }),
        "`scale` must be two values in order, from 0.1 to 10, not [1.2, 0.8]"
    );
    let small = ImageConfig { stored_size: Some(Size::square(20)), ..image };
    assert_eq!(
        refused(&small, AugmentConfig { crop: CropConfig::Window, ..augment.clone() }),
        "`stored_size` must be at least `size` for a window, not 20 x 20"
    );
}
