//! Compares the engines on one model: largest difference of the rows, and time of 1 and 8 images.
//!
//! ```sh
//! cargo run --release -p gallerist-onnx --features onnxruntime --example engines -- MODEL.onnx [SIDE] [PASSES]
//! ```
//!
//! SIDE is height and width of the images where the model takes any (224). Each time is the median of PASSES (20), in which the
//! engines take turns.

use std::path::Path;
use std::time::Instant;

use gallerist_onnx::{Engine, Model, Rows};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| args.get(at).map_or(Ok(default), |text| text.parse());
    let (side, passes) = (number(1, 224)?, number(2, 20)?);
    let path = Path::new(args.first().ok_or("the ONNX model is missing")?);
    let open = |&engine: &Engine| Model::open(path, None, Rows::default(), engine);
    let models: Vec<Model> = Engine::ALL.iter().map(open).collect::<Result<_, _>>()?;
    let [channels, height, width] = models[0].image_shape();
    let shape = [channels.unwrap_or(3), height.unwrap_or(side), width.unwrap_or(side)];
    for n in [1, 8] {
        let shape = [n, shape[0], shape[1], shape[2]];
        let images: Vec<f32> =
            (0..shape.iter().product::<usize>()).map(|i| (0.37 * i as f64).sin() as f32).collect();
        let rows: Vec<Vec<f32>> =
            models.iter().map(|model| model.extract(&images, shape)).collect::<Result<_, _>>()?;
        let largest = rows[1].iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let differences = rows[0].iter().zip(&rows[1]).map(|(a, b)| (a - b).abs());
        let difference = differences.fold(0.0, f32::max) / largest;
        let mut times = vec![Vec::new(); models.len()];
        for _ in 0..passes {
            for (model, times) in models.iter().zip(&mut times) {
                let start = Instant::now();
                model.extract(&images, shape)?;
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        let medians = times.iter_mut().zip(&models).map(|(times, model)| {
            times.sort_by(f64::total_cmp);
            format!("{} {:.1} ms", model.engine().name(), times[times.len() / 2])
        });
        let medians: Vec<String> = medians.collect();
        println!("{n} x {:?}: {}, difference {difference:.1e}", &shape[1..], medians.join(", "));
    }
    Ok(())
}
