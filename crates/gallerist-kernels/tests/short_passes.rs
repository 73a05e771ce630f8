//! Passes of single images, one after the other, on more threads than the machine has.

use gallerist_kernels::prepared::{Builder, Convolution};
use gallerist_kernels::{Products, on_worker};

/// A thread that waits for a part of a layer must not look for work until the whole pass has ended: the pass would wait for it.
#[test]
fn short_passes_end() {
    rayon::ThreadPoolBuilder::new().num_threads(8).build_global().unwrap();
    let (mut builder, mut maps) = Builder::new([1, 16, 16]);
    for _ in 0..4 {
        let weight = (vec![1.0; 9], [1, 1, 3, 3]);
        let layer = Convolution { weight, bias: vec![0.0], stride: 1, padding: [(1, 1); 2], groups: 1 };
        maps = builder.conv(maps, layer);
    }
    let plan = builder.finish(&[maps], Products::F32);
    let image = [1.0; 256];
    let wanted = plan.run(&image, 1, &[true]);
    for pass in 0..5000 {
        let run = || plan.run(&image, 1, &[true]);
        // From this thread and from one of the pool.
        let found = if pass % 2 == 0 { run() } else { on_worker(run) };
        assert_eq!(found, wanted, "pass {pass}");
    }
}
