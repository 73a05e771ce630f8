//! Several ranks take the steps of one process. Here ranks are threads; `gallerist/tests/mpi.rs` starts processes.

#[path = "common/pictures.rs"]
mod pictures;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gallerist_collective::Collective;
use gallerist_data::ImageSet;
use gallerist_tensor::device::DeviceChoice;
use gallerist_testkit::ranks::with_ranks;
use gallerist_train::checkpoint::Checkpoint;
use gallerist_train::log::Step;
use gallerist_train::{CheckpointKind, Observer, RunConfig, RunEnd, TrainerBuilder};

/// Eight classes of six bitmaps of 16 x 16 pixels; of class 7 one is damaged.
fn images(folder: &Path) {
    pictures::write(folder, [8, 6, 16], 1);
    let damaged = std::fs::File::options().write(true).open(folder.join("class-7/3.bmp")).unwrap();
    damaged.set_len(20).unwrap();
}

const NORMS: &str = "[network]\nkind = \"conv_blocks\"\nchannels = [8, 8]\ndimensions = 6";

const TOKENS: &str = "[network]\nkind = \"vit\"\nwidth = 16\ndepth = 2\nattention_heads = 2\npatch = 8\ndrop_path = 0.3\ndimensions = 6";

fn config(network: &str, train: &str, more: &str) -> RunConfig {
    let text = format!(
        "[image]\nsize = 16\nchannels = 1\n[augment]\nflip = 0.5\nshift = 0.1\n\
         [sampler]\nkind = \"classes_images\"\nclasses_per_batch = 5\nimages_per_class = 3\n\
         [train]\nsteps = 6\nloader_threads = 1\n{train}\n\
         [validation]\nfraction = 0.25\nevery = 3\n[optimizer]\nlearning_rate = 0.05\nclip_norm = 1.0\n\
         {network}\n{more}"
    );
    RunConfig::parse(&text, "a test", &[]).unwrap()
}

#[derive(Default)]
struct Seen {
    steps: Vec<Step>,
    warnings: Vec<String>,
    validations: Vec<f64>,
    stop: Option<(usize, Arc<AtomicBool>)>,
}

impl Observer for Seen {
    fn step(&mut self, record: &Step) {
        // Times differ.
        self.steps.push(Step { seconds: 0.0, waited: 0.0, ..record.clone() });
        if let Some((step, flag)) = &self.stop
            && *step == record.step
        {
            flag.store(true, Ordering::Relaxed);
        }
    }

    fn warning(&mut self, message: &str) {
        self.warnings.push(message.into());
    }

    fn validation(&mut self, _: usize, evaluation: &gallerist_retrieval::eval::Evaluation, _: bool) {
        self.validations.push(evaluation.metrics["recall@1"]);
    }
}

/// How a run is called on every rank.
struct Call<'a> {
    config: &'a RunConfig,
    images: &'a Path,
    out: &'a Path,
    resumed: bool,
    /// The rank that is asked to stop, and the step after which.
    stop: Option<(usize, usize)>,
}

impl Call<'_> {
    fn rank(&self, ranks: Arc<dyn Collective>) -> (Seen, RunEnd) {
        let (train, validation) = ImageSet::open(self.images).unwrap().split_classes(0.25, 0).unwrap();
        let rank = ranks.rank();
        let builder = TrainerBuilder::new(self.config).images(train, Some(validation)).ranks(ranks);
        let started = if self.resumed { builder.resume(self.out) } else { builder.start(self.out) };
        let mut trainer = started.unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        let stop = self.stop.filter(|(of, _)| *of == rank).map(|(_, step)| (step, flag.clone()));
        let mut seen = Seen { stop, ..Seen::default() };
        let end = trainer.run(&mut seen, &flag).unwrap();
        (seen, end)
    }

    /// What all ranks see, which is the same but for validations and warnings.
    fn run(&self, size: usize) -> (Seen, RunEnd) {
        let mut all = with_ranks(size, |ranks| {
            // The operations of a rank wait for those of the others: they must not share threads.
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            pool.install(|| self.rank(ranks))
        });
        for (rank, (seen, end)) in all.iter().enumerate() {
            assert_eq!((&seen.steps, end), (&all[0].0.steps, &all[0].1), "rank {rank} of {size}");
            assert!(rank == 0 || seen.validations.is_empty(), "rank 0 measures");
        }
        all.swap_remove(0)
    }

    fn parameters(&self) -> Vec<f32> {
        let file = self.out.join("checkpoints").join(CheckpointKind::Last.file_name());
        let network = Checkpoint::load(&file).unwrap().network;
        network.into_values().flat_map(|data| data.try_into_vec::<f32>().unwrap()).collect()
    }
}

fn close(found: f32, wanted: f32, by: f32, what: &str) {
    assert!((found - wanted).abs() <= by * wanted.abs().max(1e-2), "{what}: {found} instead of {wanted}");
}

/// The same steps on 2, 3 and 4 ranks as on one, up to the rounding of sums. `last`: how far rounding may carry the last
/// of six steps.
fn takes_the_steps_of_one_process(network: &str, train: &str, more: &str, last: f32) {
    let folder = tempfile::tempdir().unwrap();
    let images_folder = folder.path().join("images");
    images(&images_folder);
    let config = config(network, train, more);
    let call = |out: &Path, size: usize| {
        let call = Call { config: &config, images: &images_folder, out, resumed: false, stop: None };
        let (seen, end) = call.run(size);
        assert_eq!(end, RunEnd::Finished);
        (seen, call.parameters())
    };
    let (wanted, parameters) = call(&folder.path().join("1"), 1);
    for size in [2, 3, 4] {
        let (found, found_parameters) = call(&folder.path().join(size.to_string()), size);
        let what = format!("{size} ranks, {more}");
        close(found.steps[0].loss, wanted.steps[0].loss, 1e-6, &format!("first loss, {what}"));
        let norms = [&found, &wanted].map(|seen| seen.steps[0].gradient_norm);
        close(norms[0], norms[1], 1e-5, &format!("first gradient, {what}"));
        for (found, wanted) in found.steps.iter().zip(&wanted.steps) {
            close(found.loss, wanted.loss, last, &format!("loss of step {}, {what}", wanted.step));
            assert_eq!((found.step, found.epoch), (wanted.step, wanted.epoch));
        }
        let furthest =
            found_parameters.iter().zip(&parameters).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(
            found_parameters.len() == parameters.len() && furthest < last,
            "parameters by {furthest}, {what}"
        );
        assert_eq!(found.validations.len(), wanted.validations.len());
        for (found, wanted) in found.validations.iter().zip(&wanted.validations) {
            assert!((found - wanted).abs() <= 0.1, "recall {found} instead of {wanted}, {what}");
        }
        let damaged = |seen: &Seen| seen.warnings.iter().filter(|text| text.contains("3.bmp")).count();
        assert_eq!((damaged(&found), damaged(&wanted)), (1, 1), "{:?}", found.warnings);
    }
}

#[test]
fn synchronised_batch_norm_and_a_memory() {
    let more = "[loss]\nname = \"multi_similarity\"\n[xbm]\nsize = 32\nstart_step = 2";
    takes_the_steps_of_one_process(NORMS, "", more, 2e-3);
}

#[test]
fn learned_proxies_accumulated_gradients_and_averaged_weights() {
    let train = "accumulate = 2\naverage_decay = 0.9";
    takes_the_steps_of_one_process(NORMS, train, "[loss]\nname = \"proxy_anchor\"", 2e-3);
}

#[test]
fn random_depth_of_a_transformer() {
    takes_the_steps_of_one_process(TOKENS, "", "[loss]\nname = \"rll\"", 2e-3);
}

#[test]
fn statistics_of_each_rank_are_averaged_where_batch_norm_is_not_synchronised() {
    let folder = tempfile::tempdir().unwrap();
    images(&folder.path().join("images"));
    let more = "[loss]\nname = \"rll\"\n[distributed]\nsync_batch_norm = false";
    let config = config(NORMS, "", more);
    let (images, out) = (folder.path().join("images"), folder.path().join("out"));
    let call = Call { config: &config, images: &images, out: &out, resumed: false, stop: None };
    // A checkpoint is refused where the ranks have other parameters, and `run` compares what they log.
    let (seen, _) = call.run(3);
    let alone = Call { out: &folder.path().join("alone"), ..call }.run(1).0;
    assert!((seen.steps[0].loss - alone.steps[0].loss).abs() > 1e-4, "the loss of one process");
}

#[test]
fn a_run_continues_with_another_number_of_ranks_and_any_rank_can_stop_it() {
    let folder = tempfile::tempdir().unwrap();
    images(&folder.path().join("images"));
    let config = config(NORMS, "", "[loss]\nname = \"multi_similarity\"\n[xbm]\nsize = 32\nstart_step = 1");
    let (images, whole, parts) =
        (folder.path().join("images"), folder.path().join("whole"), folder.path().join("parts"));
    let call = Call { config: &config, images: &images, out: &whole, resumed: false, stop: None };
    let (wanted, _) = call.run(1);
    let first = Call { out: &parts, stop: Some((1, 2)), ..call };
    let (seen, end) = first.run(2);
    assert_eq!((seen.steps.len(), end), (2, RunEnd::Interrupted));
    let second = Call { resumed: true, stop: Some((2, 4)), ..first };
    assert_eq!(second.run(3).1, RunEnd::Interrupted);
    let (last, end) = Call { stop: None, ..second }.run(1);
    assert_eq!((last.steps.len(), end), (2, RunEnd::Finished));
    for (found, wanted) in last.steps.iter().zip(&wanted.steps[4..]) {
        close(found.loss, wanted.loss, 2e-3, &format!("loss of step {}", wanted.step));
    }
}

#[test]
fn a_batch_has_an_image_for_every_rank() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let (train, _) = ImageSet::open(folder.path()).unwrap().split_classes(0.25, 0).unwrap();
    let config = config(NORMS, "", "[loss]\nname = \"rll\"");
    let out = folder.path().join("out");
    let errors = with_ranks(16, |ranks| {
        let started = TrainerBuilder::new(&config).images(train.clone(), None).ranks(ranks).start(&out);
        started.err().map(|error| error.to_string())
    });
    for error in errors {
        let error = error.expect("15 images for 16 ranks");
        assert!(error.contains("16 images or more") && error.contains("15"), "{error}");
    }
    assert!(!out.exists());
}

#[test]
fn ranks_may_name_their_devices_differently_but_take_one_run_file() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let (train, validation) = ImageSet::open(folder.path()).unwrap().split_classes(0.25, 0).unwrap();
    let config = config(NORMS, "", "[loss]\nname = \"rll\"");
    let start = |name: &str, of_rank_1: &(dyn Fn(&mut RunConfig) + Sync)| {
        let out = folder.path().join(name);
        let mut errors = with_ranks(2, |ranks| {
            let mut config = config.clone();
            config.train.device = DeviceChoice::Cpu;
            if ranks.rank() == 1 {
                of_rank_1(&mut config);
            }
            // As in `Call::run`.
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            pool.install(|| {
                let builder = TrainerBuilder::new(&config).images(train.clone(), Some(validation.clone()));
                builder.ranks(ranks).start(&out).err().map(|error| error.to_string())
            })
        });
        errors.swap_remove(1)
    };
    // Where there is no GPU, `auto` is the CPU, too.
    if DeviceChoice::Auto.open().unwrap().is_cpu() {
        assert_eq!(start("devices", &|config| config.train.device = DeviceChoice::Auto), None);
    }
    let error = start("seeds", &|config| config.train.seed = 5).unwrap();
    assert!(error.contains("another run file"), "{error}");
}
