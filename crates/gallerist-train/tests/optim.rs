//! Optimisers, schedules and parameters by name, against arithmetic written out in f64.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_nn::layers::{Init, Linear};
use gallerist_tensor::params;
use gallerist_train::optim::{
    Optimizer, OptimizerConfig, OptimizerKind, Part, ScheduleConfig, ScheduleKind, clip_by_global_norm,
};

#[derive(Module, Debug)]
struct Toy {
    body: Param<Tensor<2>>,
    norm: Param<Tensor<1>>,
    head: Linear,
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn toy() -> Toy {
    let device = device();
    Toy {
        body: Param::from_tensor(Tensor::from_floats([[0.5, -1.0], [2.0, 0.25]], &device)),
        norm: Param::from_tensor(Tensor::from_floats([1.0, -0.5], &device)),
        head: Linear::new(&Init::new(3, &device), "head", 2, 2, false),
    }
}

/// Gradients of the sum of `factor * p^2 / 2`: `factor * p`.
fn gradients(toy: &Toy, factor: f64) -> GradientsParams {
    let half_square = |sum: Tensor<1>| sum.mul_scalar(0.5 * factor);
    let loss = half_square(toy.body.val().square().sum())
        + half_square(toy.norm.val().square().sum())
        + half_square(toy.head.weight.val().square().sum());
    GradientsParams::from_grads(loss.backward(), toy)
}

fn values(toy: &Toy, name: &str) -> Vec<f64> {
    params::collect(toy)[name].clone().convert::<f64>().try_into_vec().unwrap()
}

fn close(found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    for (f, w) in found.iter().zip(wanted) {
        assert!((f - w).abs() < 1e-5 * w.abs().max(1.0), "{found:?} {wanted:?}");
    }
}

#[test]
fn sgd_is_pytorchs_sgd_with_momentum_and_weight_decay() {
    let config =
        OptimizerConfig { learning_rate: 0.1, momentum: 0.9, weight_decay: 0.01, ..Default::default() };
    let mut optimizer = Optimizer::new(&config);
    let mut toy = toy();
    let mut wanted = values(&toy, "body");
    let mut velocity = vec![0.0; wanted.len()];
    for step in 0..4 {
        let factor = 1.0 + step as f64;
        let gradients = gradients(&toy, factor);
        toy = optimizer.step(0.1, Part::Network, toy, gradients);
        for (w, v) in wanted.iter_mut().zip(&mut velocity) {
            *v = 0.9 * *v + factor * *w + 0.01 * *w;
            *w -= 0.1 * *v;
        }
        close(&values(&toy, "body"), &wanted);
    }
}

#[test]
fn adamw_is_the_papers() {
    let config = OptimizerConfig { kind: OptimizerKind::AdamW, weight_decay: 0.1, ..Default::default() };
    let mut optimizer = Optimizer::new(&config);
    let mut toy = toy();
    let mut wanted = values(&toy, "body");
    let (mut m, mut v) = (vec![0.0; wanted.len()], vec![0.0; wanted.len()]);
    for step in 1..=4 {
        let gradients = gradients(&toy, 2.0);
        toy = optimizer.step(0.01, Part::Network, toy, gradients);
        for i in 0..wanted.len() {
            let g = 2.0 * wanted[i];
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            let (m_hat, v_hat) = (m[i] / (1.0 - 0.9f64.powi(step)), v[i] / (1.0 - 0.999f64.powi(step)));
            wanted[i] -= 0.01 * (m_hat / (v_hat.sqrt() + 1e-8) + 0.1 * wanted[i]);
        }
        close(&values(&toy, "body"), &wanted);
    }
}

#[test]
fn the_head_learns_at_its_own_rate_and_norms_need_not_decay() {
    let config = OptimizerConfig {
        momentum: 0.0,
        head_factor: 10.0,
        weight_decay: 0.5,
        decay_norm_and_bias: false,
        ..Default::default()
    };
    let toy = toy();
    let before = |name: &str| values(&toy, name);
    let (body, norm, head) = (before("body"), before("norm"), before("head.weight"));
    let after = Optimizer::new(&config).step(0.01, Part::Network, toy.clone(), gradients(&toy, 1.0));
    let moved = |values: &[f64], rate: f64, slope: f64| {
        values.iter().map(|w| w - rate * slope * w).collect::<Vec<_>>()
    };
    close(&values(&after, "body"), &moved(&body, 0.01, 1.5));
    close(&values(&after, "norm"), &moved(&norm, 0.01, 1.0));
    close(&values(&after, "head.weight"), &moved(&head, 0.1, 1.5));
}

#[derive(Module, Debug)]
struct Deep {
    pos_embed: Param<Tensor<2>>,
    blocks: Vec<Linear>,
    head: Linear,
}

#[test]
fn the_rate_decays_from_block_to_block() {
    let device = device();
    let linear = |path: &str| Linear::new(&Init::new(3, &device), path, 2, 2, false);
    let deep = Deep {
        pos_embed: Param::from_tensor(Tensor::from_floats([[0.5, -1.0]], &device)),
        blocks: vec![linear("0"), linear("1")],
        head: linear("head"),
    };
    let config = OptimizerConfig {
        momentum: 0.0,
        layer_decay: 0.5,
        head_factor: 10.0,
        weight_decay: 1.0,
        decay_norm_and_bias: false,
        ..Default::default()
    };
    let sum = [&deep.blocks[0], &deep.blocks[1], &deep.head]
        .into_iter()
        .fold(deep.pos_embed.val().sum(), |sum, layer| sum + layer.weight.val().sum());
    let gradients = GradientsParams::from_grads(sum.backward(), &deep);
    let before = params::collect(&deep);
    let mut optimizer = Optimizer::new(&config).with_blocks(2);
    let after = params::collect(&optimizer.step(0.1, Part::Network, deep, gradients));
    // Gradients of 1; positions have no weight decay.
    for (name, rate, decay) in [
        ("pos_embed", 0.0125, 0.0),
        ("blocks.0.weight", 0.025, 1.0),
        ("blocks.1.weight", 0.05, 1.0),
        ("head.weight", 1.0, 1.0),
    ] {
        let of = |all: &std::collections::BTreeMap<String, TensorData>| -> Vec<f64> {
            all[name].clone().convert::<f64>().try_into_vec().unwrap()
        };
        let wanted: Vec<f64> = of(&before).iter().map(|w| w - rate * (1.0 + decay * w)).collect();
        close(&of(&after), &wanted);
    }
}

#[test]
fn an_optimiser_restored_from_its_state_takes_the_same_step_to_the_last_bit() {
    for kind in [OptimizerKind::Sgd, OptimizerKind::AdamW] {
        let config = OptimizerConfig { kind, ..Default::default() };
        let mut optimizer = Optimizer::new(&config);
        let mut toy = toy();
        for factor in [1.0, 0.3] {
            let gradients = gradients(&toy, factor);
            toy = optimizer.step(0.05, Part::Network, toy, gradients);
        }
        let mut restored = Optimizer::new(&config);
        restored.restore(optimizer.state(), &device(), &device()).unwrap();
        let one = optimizer.step(0.05, Part::Network, toy.clone(), gradients(&toy, 0.7));
        let two = restored.step(0.05, Part::Network, toy.clone(), gradients(&toy, 0.7));
        for name in ["body", "norm", "head.weight"] {
            assert_eq!(values(&one, name), values(&two, name), "{kind:?} {name}");
        }
    }
}

#[test]
fn a_state_of_another_shape_is_named() {
    let config = OptimizerConfig::default();
    let mut optimizer = Optimizer::new(&config);
    let toy = toy();
    let toy = optimizer.step(0.05, Part::Network, toy.clone(), gradients(&toy, 1.0));
    assert_eq!(optimizer.unfit(Part::Network, &toy), None);
    let mut state = optimizer.state();
    let of_norm = state.tensors.get_mut("norm.momentum.velocity").unwrap();
    *of_norm = TensorData::new(vec![0.0f32; 3], [3]);
    optimizer.restore(state, &device(), &device()).unwrap();
    assert_eq!(optimizer.unfit(Part::Network, &toy).as_deref(), Some("norm"));
    // A loss has parameters of its own.
    assert_eq!(optimizer.unfit(Part::Loss, &toy), None);
}

#[test]
fn clipping_scales_the_whole_gradient_to_the_limit() {
    let toy = toy();
    let mut all = gradients(&toy, 2.0);
    let norm = clip_by_global_norm(&mut all, &toy, Some(0.5));
    let squares: f64 =
        ["body", "norm", "head.weight"].iter().flat_map(|n| values(&toy, n)).map(|w| 4.0 * w * w).sum();
    assert!((norm - squares.sqrt()).abs() < 1e-5);
    let clipped = clip_by_global_norm(&mut all, &toy, None);
    assert!((clipped - 0.5).abs() < 1e-6, "{clipped}");
}

#[test]
fn schedules_go_where_they_say() {
    let with = |kind| ScheduleConfig {
        kind,
        warmup_steps: 10,
        step_size: 30,
        milestones: vec![40, 80],
        ..Default::default()
    };
    let factors = |schedule: &ScheduleConfig| (0..100).map(|s| schedule.factor(s, 100)).collect::<Vec<_>>();
    for kind in [ScheduleKind::Constant, ScheduleKind::Cosine, ScheduleKind::Step, ScheduleKind::MultiStep] {
        let all = factors(&with(kind));
        assert!((all[0] - 0.1).abs() < 1e-12 && (all[4] - 0.5).abs() < 1e-12, "{kind:?} rises linearly");
        assert!(all[10..].windows(2).all(|w| w[1] <= w[0] + 1e-12), "{kind:?} never rises after the warm-up");
    }
    assert_eq!(with(ScheduleKind::Constant).factor(99, 100), 1.0);
    assert!((with(ScheduleKind::Cosine).factor(55, 100) - 0.5).abs() < 1e-12);
    let step = with(ScheduleKind::Step);
    assert!((step.factor(29, 100) - 1.0).abs() < 1e-12 && (step.factor(30, 100) - 0.1).abs() < 1e-12);
    let milestones = with(ScheduleKind::MultiStep);
    assert!((milestones.factor(39, 100) - 1.0).abs() < 1e-12);
    assert!(
        (milestones.factor(40, 100) - 0.1).abs() < 1e-12 && (milestones.factor(80, 100) - 0.01).abs() < 1e-12
    );
}

#[test]
fn tensors_find_their_place_by_name_and_what_does_not_fit_is_named() {
    let toy = toy();
    let mut tensors = params::collect(&toy);
    assert_eq!(tensors.keys().collect::<Vec<_>>(), ["body", "head.weight", "norm"]);
    let (same, mismatch) = params::load(toy.clone(), tensors.clone());
    assert!(mismatch.is_empty());
    assert_eq!(values(&same, "body"), values(&toy, "body"));

    tensors.remove("norm");
    tensors.insert("body".into(), TensorData::new(vec![0f32; 3], [1, 3]));
    tensors.insert("tail".into(), TensorData::new(vec![0f32], [1]));
    let (_, mismatch) = params::load(toy, tensors);
    let text = mismatch.to_string();
    assert!(
        text.contains("`norm`") && text.contains("`tail`") && text.contains("[2, 2] here and [1, 3]"),
        "{text}"
    );
}
