//! Times decoding, fitting and transforming: `cargo run --release --example speed -- SOURCE SIZE STORED`.
//!
//! Prints the fastest of several passes, in images per second of one thread.

use std::sync::Arc;
use std::time::Instant;

use gallerist_data::*;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, size, stored] = arguments.as_slice() else {
        eprintln!("usage: speed SOURCE SIZE STORED");
        std::process::exit(2);
    };
    let side = |text: &String| text.parse::<usize>().expect("a side in pixels");
    let options = OpenOptions { max_images: Some(2000), ..OpenOptions::default() };
    let start = Instant::now();
    let set = Arc::new(ImageSet::open(source)?);
    println!("open {} images: {:.1} ms", set.len(), start.elapsed().as_secs_f64() * 1e3);
    let set = if set.len() > 2000 { Arc::new(ImageSet::open_with(&[source], &options)?) } else { set };
    let channels = set.decode(0)?.channels();
    let config = ImageConfig {
        stored_size: Some(Size::square(side(stored))),
        ..ImageConfig::new(side(size), channels)
    };
    let augment = AugmentConfig {
        rotation_degrees: 15.0,
        scale: [0.8, 1.2],
        shear_degrees: 10.0,
        shift: 0.1,
        ..AugmentConfig::default()
    };
    let training = Transform::training(&config, &augment)?;
    let evaluation = Transform::evaluation(&config)?;
    let n = set.len();
    let time = |name: &str, pass: &mut dyn FnMut(usize)| {
        let best = (0..5)
            .map(|_| {
                let start = Instant::now();
                (0..n).for_each(&mut *pass);
                start.elapsed().as_secs_f64()
            })
            .fold(f64::INFINITY, f64::min);
        println!("{name}: {:.1} us an image, {:.0} images/s", best / n as f64 * 1e6, n as f64 / best);
    };
    time("read", &mut |i| drop(set.read(i).expect("readable")));
    let files: Vec<Vec<u8>> = (0..n).map(|i| set.read(i)).collect::<Result<_, _>>()?;
    time("decode", &mut |i| drop(decode(&files[i], "").expect("an image")));
    let images: Vec<Image> = (0..n).map(|i| set.decode(i)).collect::<Result<_, _>>()?;
    time("fit for evaluation", &mut |i| drop(evaluation.fit(images[i].clone())));
    // What the loader does: a large JPEG comes at a reduced size.
    let store = ImageStore::new(set.clone(), evaluation.clone(), 0);
    time("read, decode and fit as needed", &mut |i| drop(store.get(i).expect("an image")));
    let difference: f64 = (0..n)
        .map(|i| {
            let (needed, whole) = (store.get(i).expect("an image"), evaluation.fit(images[i].clone()));
            let pairs = needed.pixels().iter().zip(whole.pixels());
            pairs.map(|(a, b)| f64::from(a.abs_diff(*b))).sum::<f64>() / whole.pixels().len() as f64
        })
        .sum();
    println!("mean difference from whole decoding: {:.2} grey levels", difference / n as f64);
    let stored: Vec<Image> = images.iter().map(|i| training.fit(i.clone())).collect();
    let mut out = vec![0.0; training.tensor_len()];
    time("augment", &mut |i| {
        training.apply(&stored[i], &mut Random::new(1, "augment", 0, i as u64), &mut out);
    });
    let small: Vec<Image> = images.iter().map(|i| evaluation.fit(i.clone())).collect();
    time("normalise", &mut |i| {
        evaluation.apply(&small[i], &mut Random::new(1, "augment", 0, i as u64), &mut out);
    });
    let store = Arc::new(ImageStore::new(set.clone(), training, 1 << 30));
    for pass in ["loader, 2 threads, decoding", "loader, 2 threads, from memory"] {
        let start = Instant::now();
        let plan = BatchPlan::in_order(n, 128);
        let mut loader = Loader::new(store.clone(), plan, LoaderOptions::training(1, 2))?;
        for batch in &mut loader {
            std::hint::black_box(batch?);
        }
        println!("{pass}: {:.0} images/s", n as f64 / start.elapsed().as_secs_f64());
    }
    Ok(())
}
