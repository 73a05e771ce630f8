//! The pair, triplet and list losses in f64, by loops written from their equations. Shares no code with the
//! library.

use serde_json::{Value, json};

pub(crate) type Rows = Vec<Vec<f64>>;

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

pub(crate) fn dist(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt()
}

pub(crate) fn plus(x: f64) -> f64 {
    x.max(0.0)
}

pub(crate) fn log_sum_exp(x: &[f64]) -> f64 {
    let largest = x.iter().cloned().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        largest
    } else {
        largest + x.iter().map(|v| (v - largest).exp()).sum::<f64>().ln()
    }
}

pub(crate) fn log_one_plus(x: &[f64]) -> f64 {
    log_sum_exp(&[x, &[0.0]].concat())
}

pub(crate) fn max(x: impl Iterator<Item = f64>) -> f64 {
    x.fold(f64::NEG_INFINITY, f64::max)
}

pub(crate) fn min(x: impl Iterator<Item = f64>) -> f64 {
    x.fold(f64::INFINITY, f64::min)
}

pub(crate) fn mean(x: &[f64]) -> f64 {
    if x.is_empty() { 0.0 } else { x.iter().sum::<f64>() / x.len() as f64 }
}

/// The value of a loss by loops, straight from its equations. The first `n` rows are the queries, all rows the
/// gallery.
pub(crate) fn value(json: &Value, n: usize, x: &Rows, related: &dyn Fn(usize, usize) -> bool) -> f64 {
    let g = x.len();
    let number = |key: &str, default: f64| json.get(key).map_or(default, |v| v.as_f64().unwrap());
    let flag = |key: &str, default: bool| json.get(key).map_or(default, |v| v.as_bool().unwrap());
    let positives = |i: usize| (0..g).filter(|&j| j != i && related(i, j)).collect::<Vec<_>>();
    let negatives = |i: usize| (0..g).filter(|&j| j != i && !related(i, j)).collect::<Vec<_>>();
    let d = |i: usize, j: usize| dist(&x[i], &x[j]);
    let s = |i: usize, j: usize| dot(&x[i], &x[j]);
    let anchors: Vec<usize> =
        (0..n).filter(|&i| !positives(i).is_empty() && !negatives(i).is_empty()).collect();
    let margin = number("margin", 0.2);
    match json["name"].as_str().unwrap() {
        "nra" => {
            let (alpha, eps) = (number("alpha", 4.0), number("eps", 1e-4));
            let w = |r: f64| {
                if r < 0.5 { 0.5 * (2.0 * r).powf(alpha) } else { 1.0 - 0.5 * (2.0 * (1.0 - r)).powf(alpha) }
            };
            let per = anchors.iter().map(|&i| {
                let others = || (0..g).filter(move |&j| j != i).map(move |j| d(i, j));
                let (high, low) = (max(others()), min(others()));
                if high == low {
                    return 0.0;
                }
                let r_p = (max(positives(i).into_iter().map(|j| d(i, j))) - low) / (high - low);
                let r_n = (min(negatives(i).into_iter().map(|j| d(i, j))) - low) / (high - low);
                let (s_p, s_n) = (1.0 - w(r_p), 1.0 - w(r_n));
                -(s_p + eps).ln() - (1.0 - s_n + eps).ln()
            });
            mean(&per.collect::<Vec<_>>())
        }
        "srt" => {
            let (balance, temperature) = (number("balance", 0.5), number("temperature", 0.2));
            let (margin, hard) = (number("margin", 0.0), number("hard_weight", 0.0));
            let bend = |z: f64| if flag("soft", false) { log_one_plus(&[z]) } else { plus(z) };
            let per = anchors.iter().map(|&i| {
                let rank = |j: usize| {
                    (0..g).map(|k| 1.0 / (1.0 + ((d(i, k) - d(i, j)) / temperature).exp())).sum::<f64>()
                };
                let (p, m) = (positives(i), negatives(i));
                let (p_len, n_len) = (p.len() as f64, m.len() as f64);
                let (above, below) = (p_len + 1.0 - margin, p_len + 2.0 + margin);
                let pull: f64 = p.iter().map(|&j| bend(rank(j) - above)).sum();
                let push: f64 = m.iter().map(|&j| bend(below - rank(j))).sum();
                let ranks = |set: &[usize]| set.iter().map(|&j| rank(j)).collect::<Vec<_>>().into_iter();
                let printed = json.get("hardest").is_some_and(|v| v == "as_printed");
                let (r_p, r_n) =
                    if printed { (min(ranks(&p)), max(ranks(&m))) } else { (max(ranks(&p)), min(ranks(&m))) };
                let hardest = balance / p_len * plus(r_p - p_len / 2.0)
                    + (1.0 - balance) / n_len * plus((g as f64 + p_len + 1.0) / 2.0 - r_n);
                balance / p_len * pull + (1.0 - balance) / n_len * push + hard * hardest
            });
            mean(&per.collect::<Vec<_>>())
        }
        "ice" => {
            let scale = number("scale", 32.0);
            let mut sum = 0.0;
            for &a in &anchors {
                let others: Vec<f64> = negatives(a).iter().map(|&j| scale * s(a, j)).collect();
                for i in positives(a) {
                    sum += log_sum_exp(&[&others[..], &[scale * s(a, i)]].concat()) - scale * s(a, i);
                }
            }
            sum / n as f64
        }
        "contrastive" => {
            let mut costs = Vec::new();
            for i in 0..n {
                for j in (0..g).filter(|&j| j != i) {
                    costs.push(if related(i, j) {
                        d(i, j).powi(2)
                    } else {
                        plus(number("margin", 1.0) - d(i, j)).powi(2)
                    });
                }
            }
            mean(&costs)
        }
        "triplet_all" => {
            let mut costs = Vec::new();
            for a in 0..n {
                for p in positives(a) {
                    costs.extend(
                        negatives(a).iter().map(|&m| plus(d(a, p).powi(2) + margin - d(a, m).powi(2))),
                    );
                }
            }
            mean(&costs)
        }
        "triplet_semihard" => {
            let mut costs = Vec::new();
            for &a in &anchors {
                for p in positives(a) {
                    let far = || negatives(a).into_iter().map(|m| d(a, m));
                    let semi = min(far().filter(|&v| v > d(a, p)));
                    let chosen = if semi.is_finite() { semi } else { max(far()) };
                    costs.push(plus(d(a, p).powi(2) + margin - chosen.powi(2)));
                }
            }
            mean(&costs)
        }
        "triplet_batch_hard" => {
            let per = anchors.iter().map(|&a| {
                let gap = max(positives(a).into_iter().map(|p| d(a, p)))
                    - min(negatives(a).into_iter().map(|m| d(a, m)));
                if flag("soft", false) { log_one_plus(&[gap]) } else { plus(margin + gap) }
            });
            mean(&per.collect::<Vec<_>>())
        }
        "triplet_hard_negative" => {
            let mut costs = Vec::new();
            for &a in &anchors {
                let nearest = min(negatives(a).into_iter().map(|m| d(a, m)));
                costs.extend(positives(a).into_iter().map(|p| plus(margin + d(a, p) - nearest)));
            }
            mean(&costs)
        }
        "triplet_adaptive" => {
            let weighted = |a: usize, set: Vec<usize>, sign: f64| {
                let all = log_sum_exp(&set.iter().map(|&j| sign * d(a, j)).collect::<Vec<_>>());
                set.iter().map(|&j| (sign * d(a, j) - all).exp() * d(a, j)).sum::<f64>()
            };
            let margin = number("margin", 4.5);
            let per = anchors
                .iter()
                .map(|&a| plus(margin + weighted(a, positives(a), 1.0) - weighted(a, negatives(a), -1.0)));
            mean(&per.collect::<Vec<_>>())
        }
        "multi_similarity" => {
            let (alpha, beta, base) = (number("alpha", 3.0), number("beta", 12.0), number("base", 0.5));
            let epsilon = json.pointer("/miner/epsilon").map_or(0.1, |v| v.as_f64().unwrap());
            let per = (0..n).map(|i| {
                let (mut p, mut m) = (positives(i), negatives(i));
                if json.pointer("/miner/name").is_none_or(|name| name != "all") {
                    let (worst_p, worst_n) =
                        (min(p.iter().map(|&j| s(i, j))), max(m.iter().map(|&j| s(i, j))));
                    p.retain(|&j| worst_n.is_finite() && s(i, j) < worst_n + epsilon);
                    m.retain(|&j| worst_p.is_finite() && s(i, j) > worst_p - epsilon);
                }
                let pull: Vec<f64> = p.iter().map(|&j| -alpha * (s(i, j) - base)).collect();
                let push: Vec<f64> = m.iter().map(|&j| beta * (s(i, j) - base)).collect();
                log_one_plus(&pull) / alpha + log_one_plus(&push) / beta
            });
            mean(&per.collect::<Vec<_>>())
        }
        "lifted" => {
            let alpha = number("alpha", 4.0);
            let (mut sum, mut count) = (0.0, 0.0);
            for i in 0..n {
                for j in positives(i) {
                    let mut terms: Vec<f64> = negatives(i).iter().map(|&k| alpha - d(i, k)).collect();
                    let known = negatives(j).into_iter().filter(|&l| j < n || l < n);
                    terms.extend(known.map(|l| alpha - d(j, l)));
                    let cost = plus(log_sum_exp(&terms) + d(i, j));
                    sum += if flag("squared", false) { cost * cost } else { cost };
                    count += 1.0;
                }
            }
            if count == 0.0 { 0.0 } else { sum / (2.0 * count) }
        }
        "angular" => {
            let t = (number("angle", 42.0) * std::f64::consts::PI / 180.0).tan().powi(2);
            let mut costs = Vec::new();
            for a in 0..n {
                for p in positives(a) {
                    let both = negatives(a).into_iter().filter(|&m| !related(p, m) && (p < n || m < n));
                    let f = both.map(|m| 4.0 * t * (s(a, m) + s(p, m)) - 2.0 * (1.0 + t) * s(a, p));
                    costs.push(log_one_plus(&f.collect::<Vec<_>>()));
                }
            }
            mean(&costs)
        }
        "histogram" => {
            let bins = number("bins", 151.0) as usize;
            let step = 2.0 / (bins - 1) as f64;
            let histogram = |same: bool| {
                let pairs: Vec<f64> = (0..n)
                    .flat_map(|i| (0..g).map(move |j| (i, j)))
                    .filter(|&(i, j)| i != j && related(i, j) == same)
                    .map(|(i, j)| s(i, j).clamp(-1.0, 1.0))
                    .collect();
                (0..bins)
                    .map(|r| {
                        mean(
                            &pairs
                                .iter()
                                .map(|v| plus(1.0 - (v - (r as f64 * step - 1.0)).abs() / step))
                                .collect::<Vec<_>>(),
                        )
                    })
                    .collect::<Vec<f64>>()
            };
            let (h_p, h_n) = (histogram(true), histogram(false));
            (0..bins).map(|r| h_n[r] * h_p[..=r].iter().sum::<f64>()).sum()
        }
        "fast_ap" => {
            let bins = number("bins", 10.0) as usize;
            let step = 4.0 / bins as f64;
            let per = (0..n).filter(|&i| !positives(i).is_empty()).map(|i| {
                let h = |set: &[usize], b: usize| {
                    set.iter()
                        .map(|&j| plus(1.0 - (d(i, j).powi(2) - b as f64 * step).abs() / step))
                        .sum::<f64>()
                };
                let (p, all) = (positives(i), (0..g).filter(|&j| j != i).collect::<Vec<_>>());
                let ap = (0..=bins).map(|b| {
                    let ahead: f64 = (0..=b).map(|c| h(&all, c)).sum();
                    let ahead_p: f64 = (0..=b).map(|c| h(&p, c)).sum();
                    if ahead == 0.0 { 0.0 } else { h(&p, b) * ahead_p / ahead }
                });
                1.0 - ap.sum::<f64>() / p.len() as f64
            });
            mean(&per.collect::<Vec<_>>())
        }
        "circle" => {
            let (m, gamma) = (number("margin", 0.5), number("gamma", 22.0));
            let per = anchors.iter().map(|&a| {
                let p: Vec<f64> = positives(a)
                    .iter()
                    .map(|&j| -gamma * plus(1.0 + m - s(a, j)) * (s(a, j) - (1.0 - m)))
                    .collect();
                let q: Vec<f64> =
                    negatives(a).iter().map(|&j| gamma * plus(s(a, j) + m) * (s(a, j) - m)).collect();
                log_one_plus(&[log_sum_exp(&p) + log_sum_exp(&q)])
            });
            mean(&per.collect::<Vec<_>>())
        }
        "sup_con" => {
            let e = |i: usize, j: usize| s(i, j) / number("temperature", 0.1);
            let nt_xent = json.get("form").is_some_and(|v| v == "nt_xent");
            let mut costs = Vec::new();
            for i in (0..n).filter(|&i| !positives(i).is_empty()) {
                let log = |p: usize| {
                    let among = if nt_xent {
                        [&[p], &negatives(i)[..]].concat()
                    } else {
                        [positives(i), negatives(i)].concat()
                    };
                    log_sum_exp(&among.iter().map(|&j| e(i, j)).collect::<Vec<_>>()) - e(i, p)
                };
                let own: Vec<f64> = positives(i).into_iter().map(log).collect();
                if nt_xent { costs.extend(own) } else { costs.push(mean(&own)) }
            }
            mean(&costs)
        }
        "smooth_ap" => {
            let (temperature, itself) = (number("temperature", 0.046), flag("include_query", false));
            let per = (0..n).filter(|&q| !positives(q).is_empty()).map(|q| {
                let own = if itself { [&[q], &positives(q)[..]].concat() } else { positives(q) };
                let rank = |i: usize, among: &[usize]| {
                    let above = among.iter().filter(|&&j| j != i);
                    1.0 + above.map(|&j| 1.0 / (1.0 + ((s(q, i) - s(q, j)) / temperature).exp())).sum::<f64>()
                };
                let all = [&own[..], &negatives(q)].concat();
                1.0 - mean(&own.iter().map(|&i| rank(i, &own) / rank(i, &all)).collect::<Vec<_>>())
            });
            mean(&per.collect::<Vec<_>>())
        }
        "recall_at_k" => {
            let (temperature, rank_temperature) =
                (number("temperature", 0.01), number("rank_temperature", 1.0));
            let ks: Vec<f64> = json.get("k").map_or(vec![1.0, 2.0, 4.0, 8.0, 16.0], |k| {
                k.as_array().unwrap().iter().map(|k| k.as_f64().unwrap()).collect()
            });
            let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
            let per = (0..n).filter(|&q| !positives(q).is_empty()).map(|q| {
                let (p, itself) = (positives(q), flag("include_query", false));
                let rank = |i: usize| {
                    let others = (0..g).filter(|&j| j != i && (j != q || itself));
                    1.0 + others.map(|j| sigmoid((s(q, j) - s(q, i)) / temperature)).sum::<f64>()
                };
                let recall = ks.iter().map(|&k| {
                    let found: f64 = p.iter().map(|&i| sigmoid((k - rank(i)) / rank_temperature)).sum();
                    found.min(k) / k.min(p.len() as f64)
                });
                1.0 - mean(&recall.collect::<Vec<_>>())
            });
            mean(&per.collect::<Vec<_>>())
        }
        "roadmap" => {
            let (temperature, rho, delta) =
                (number("temperature", 0.027), number("rho", 100.0), number("delta", 0.05));
            let (start, lambda) = (number("start", 0.5), number("lambda", 0.8));
            let sigmoid = |z: f64| 1.0 / (1.0 + (-z / temperature).exp());
            let offset = number("offset", sigmoid(delta) + start);
            let step = |z: f64| match z {
                z if z <= 0.0 => sigmoid(z),
                z if z <= delta => sigmoid(z) + start,
                z => rho * (z - delta) + offset,
            };
            let (high, low) = (number("positive_margin", 0.7), number("negative_margin", 0.6));
            let violating = json.get("calibration").is_some_and(|v| v == "violating");
            let queries: Vec<usize> = (0..n).filter(|&q| !positives(q).is_empty()).collect();
            let of_query = |&q: &usize| {
                let own = match flag("include_query", false) {
                    true => [&[q], &positives(q)[..]].concat(),
                    false => positives(q),
                };
                let precision = |&i: &usize| {
                    let above = own.iter().filter(|&&j| j != i && s(q, j) >= s(q, i)).count() as f64 + 1.0;
                    let below: f64 = negatives(q).iter().map(|&j| step(s(q, j) - s(q, i))).sum();
                    above / (above + below)
                };
                let sup_ap = 1.0 - mean(&own.iter().map(precision).collect::<Vec<_>>());
                let pull: Vec<f64> = positives(q).iter().map(|&j| plus(high - s(q, j))).collect();
                let push: Vec<f64> = negatives(q).iter().map(|&j| plus(s(q, j) - low)).collect();
                let calibration = if violating { 0.0 } else { mean(&pull) + mean(&push) };
                (1.0 - lambda) * sup_ap + lambda * calibration
            };
            let of_batch =
                |costs: Vec<f64>| mean(&costs.into_iter().filter(|&c| c > 0.0).collect::<Vec<_>>());
            let pairs = |of: &dyn Fn(usize) -> Vec<usize>, cost: &dyn Fn(f64) -> f64| {
                (0..n).flat_map(|q| of(q).into_iter().map(|j| cost(s(q, j))).collect::<Vec<_>>()).collect()
            };
            let calibration = match violating {
                true => {
                    of_batch(pairs(&positives, &|v| plus(high - v)))
                        + of_batch(pairs(&negatives, &|v| plus(v - low)))
                }
                false => 0.0,
            };
            mean(&queries.iter().map(of_query).collect::<Vec<_>>()) + lambda * calibration
        }
        "potential_field" => {
            let (alpha, delta, closest) =
                (number("alpha", 1.2), number("delta", 0.3), number("closest", 0.01));
            let decay = |d: f64| d.powf(-alpha);
            let repel = |d: f64| match d {
                d if d >= delta => decay(delta),
                d if d >= closest => decay(d),
                d => decay(closest) + alpha * closest.powf(-alpha - 1.0) * (closest - d),
            };
            let potential = |i: usize| {
                let pull: f64 = positives(i).into_iter().map(|j| -decay(d(i, j).max(delta))).sum();
                pull + negatives(i).into_iter().map(|j| repel(d(i, j))).sum::<f64>()
            };
            let sum: f64 = (0..n).map(potential).sum();
            if json.get("reduction").is_some_and(|v| v == "sum") { sum } else { sum / n as f64 }
        }
        "hyperbolic" => {
            let (c, clip) = (number("curvature", 0.013), number("clip", 2.3));
            let temperature = number("temperature", 0.26);
            let ball = |row: &Vec<f64>| -> Vec<f64> {
                let length = dot(row, row).sqrt();
                if length == 0.0 {
                    return row.clone();
                }
                let clipped = if clip > 0.0 { length.min(clip) } else { length };
                let radius = (c.sqrt() * clipped).tanh().min(1.0 - 1e-3) / c.sqrt();
                row.iter().map(|v| v / length * radius).collect()
            };
            let points: Rows = x.iter().map(ball).collect();
            // The Moebius addition (-a) + b, coordinate by coordinate.
            let distance = |i: usize, j: usize| {
                let (a, b) = (&points[i], &points[j]);
                let (ab, aa, bb) = (dot(a, b), dot(a, a), dot(b, b));
                let denominator = 1.0 - 2.0 * c * ab + c * c * aa * bb;
                let sum: Vec<f64> = (a.iter().zip(b))
                    .map(|(a, b)| ((1.0 - c * aa) * b - (1.0 - 2.0 * c * ab + c * bb) * a) / denominator)
                    .collect();
                2.0 / c.sqrt() * (c.sqrt() * dot(&sum, &sum).sqrt()).atanh()
            };
            let mut costs = Vec::new();
            for a in 0..n {
                let logit = |j: usize| -distance(a, j) / temperature;
                let others: Vec<f64> = negatives(a).into_iter().map(logit).collect();
                for p in positives(a) {
                    costs.push(log_sum_exp(&[&others[..], &[logit(p)]].concat()) - logit(p));
                }
            }
            mean(&costs)
        }
        other => panic!("no oracle for {other}"),
    }
}

/// The gradient of a loss that holds something constant, so that central differences do not give it; else `None`.
pub(crate) fn closed_gradient(json: &Value, n: usize, x: &Rows, labels: &[u32]) -> Option<Vec<f64>> {
    let number = |key: &str, default: f64| json.get(key).map_or(default, |v| v.as_f64().unwrap());
    match (json["name"].as_str().unwrap(), json.get("gradient").and_then(Value::as_str)) {
        ("ice", Some(kind @ ("paper" | "unnormalized" | "query"))) => {
            Some(ice_gradient(number("scale", 32.0), kind, n, x, labels))
        }
        ("circle", _) => Some(circle_gradient(number("margin", 0.5), number("gamma", 22.0), n, x, labels)),
        _ => None,
    }
}

/// The gradient of ICE by loops, of the first `n` rows: that of the paper, Eqs. 11-15 (`kind` "paper"); with the weights of an
/// anchor as they are instead of normalised to the sum 1 ("unnormalized"); that of the anchors with these weights ("query").
/// The first two take pairs with the other rows in exchanged roles.
pub(crate) fn ice_gradient(scale: f64, kind: &str, n: usize, x: &Rows, labels: &[u32]) -> Vec<f64> {
    let (g, dim) = (x.len(), x[0].len());
    let mut gradient = vec![0.0; n * dim];
    for a in 0..n {
        let of = |same: bool| (0..g).filter(move |&j| j != a && (labels[j] == labels[a]) == same);
        // Weights relative to the largest exponential, which cancels in the normalisation.
        let e = |j: usize| scale * dot(&x[a], &x[j]);
        let mut weights = vec![0.0; g];
        for i in of(true) {
            let all = log_sum_exp(&of(false).map(e).chain([e(i)]).collect::<Vec<_>>());
            for j in of(false) {
                weights[j] += (e(j) - all).exp();
                weights[i] += (e(j) - all).exp();
            }
        }
        let total: f64 = if kind == "paper" { weights.iter().sum() } else { 1.0 };
        for j in (0..g).filter(|&j| weights[j] > 0.0) {
            let sign = if labels[j] == labels[a] { -1.0 } else { 1.0 };
            let (to, from) = if j < n && kind != "query" { (j, a) } else { (a, j) };
            for k in 0..dim {
                gradient[to * dim + k] += sign * weights[j] / total / n as f64 * x[from][k];
            }
        }
    }
    gradient
}

/// The derivative of the circle loss by the first `n` rows, with its weights held constant, by loops.
fn circle_gradient(m: f64, gamma: f64, n: usize, x: &Rows, labels: &[u32]) -> Vec<f64> {
    let (g, dim) = (x.len(), x[0].len());
    let mut gradient = vec![0.0; n * dim];
    let of = |a: usize, same: bool| {
        (0..g).filter(move |&j| j != a && (labels[j] == labels[a]) == same).collect::<Vec<_>>()
    };
    let anchors: Vec<usize> =
        (0..n).filter(|&a| !of(a, true).is_empty() && !of(a, false).is_empty()).collect();
    for &a in &anchors {
        let s = |j: usize| dot(&x[a], &x[j]);
        let weight = |j: usize| {
            if labels[j] == labels[a] { -gamma * plus(1.0 + m - s(j)) } else { gamma * plus(s(j) + m) }
        };
        let logit = |j: usize| weight(j) * (s(j) - if labels[j] == labels[a] { 1.0 - m } else { m });
        let side = |same: bool| log_sum_exp(&of(a, same).into_iter().map(logit).collect::<Vec<_>>());
        let (p, q) = (side(true), side(false));
        let outer = 1.0 / (1.0 + (-(p + q)).exp()) / anchors.len() as f64;
        for j in (0..g).filter(|&j| j != a) {
            let c = outer * (logit(j) - if labels[j] == labels[a] { p } else { q }).exp() * weight(j);
            for k in 0..dim {
                gradient[a * dim + k] += c * x[j][k];
                if j < n {
                    gradient[j * dim + k] += c * x[a][k];
                }
            }
        }
    }
    gradient
}

/// Every loss of samples compared by pairs, triplets or lists whose value does not depend on the order of the
/// batch.
pub(crate) fn specs() -> Vec<Value> {
    vec![
        json!({"name": "nra"}),
        json!({"name": "nra", "alpha": 1.0}),
        json!({"name": "nra", "alpha": 2.5, "eps": 1e-3}),
        json!({"name": "srt"}),
        json!({"name": "srt", "margin": 1.0, "balance": 0.3}),
        json!({"name": "srt", "soft": true, "hard_weight": 0.2, "temperature": 0.1}),
        json!({"name": "srt", "hard_weight": 0.5, "hardest": "as_printed", "temperature": 0.3}),
        json!({"name": "ice"}),
        json!({"name": "ice", "gradient": "paper", "scale": 64.0}),
        json!({"name": "ice", "gradient": "autodiff", "scale": 16.0}),
        json!({"name": "ice", "gradient": "unnormalized", "scale": 4.0}),
        json!({"name": "ice", "gradient": "query", "scale": 8.0}),
        json!({"name": "contrastive"}),
        json!({"name": "contrastive", "margin": 0.7}),
        json!({"name": "triplet_all"}),
        json!({"name": "triplet_semihard"}),
        json!({"name": "triplet_semihard", "margin": 1.0}),
        json!({"name": "triplet_batch_hard"}),
        json!({"name": "triplet_batch_hard", "soft": true}),
        json!({"name": "triplet_hard_negative"}),
        json!({"name": "triplet_adaptive"}),
        json!({"name": "multi_similarity"}),
        json!({"name": "multi_similarity", "miner": {"name": "all"}, "alpha": 4.0, "beta": 30.0, "base": 0.2}),
        json!({"name": "lifted"}),
        json!({"name": "lifted", "squared": false, "alpha": 0.5}),
        json!({"name": "angular"}),
        json!({"name": "angular", "angle": 36.0}),
        json!({"name": "histogram", "bins": 11}),
        json!({"name": "histogram"}),
        json!({"name": "fast_ap"}),
        json!({"name": "fast_ap", "bins": 3}),
        json!({"name": "circle"}),
        json!({"name": "circle", "gamma": 30.0, "margin": 0.4}),
        json!({"name": "recall_at_k", "temperature": 0.1}),
        json!({"name": "recall_at_k", "temperature": 0.3, "rank_temperature": 0.5, "k": [1, 3], "include_query": true}),
        json!({"name": "roadmap", "temperature": 0.1, "delta": 0.2, "rho": 7.0}),
        json!({"name": "roadmap", "lambda": 0.3, "temperature": 0.2, "include_query": true, "calibration": "violating", "offset": 1.44}),
        json!({"name": "potential_field", "proxies": 0}),
        json!({"name": "potential_field", "proxies": 0, "alpha": 2.5, "delta": 0.9, "reduction": "sum", "closest": 0.1}),
        json!({"name": "hyperbolic"}),
        json!({"name": "hyperbolic", "curvature": 1.5, "clip": 0.8, "temperature": 0.7}),
    ]
}

pub(crate) fn unit(rows: Rows) -> Rows {
    rows.into_iter()
        .map(|row| {
            let norm = dot(&row, &row).sqrt().max(1e-9);
            row.iter().map(|v| v / norm).collect()
        })
        .collect()
}

pub(crate) fn close(found: f64, wanted: f64, tolerance: f64) -> bool {
    (found - wanted).abs() <= tolerance * wanted.abs().max(1.0)
}

/// The derivative of `f` with respect to one entry, or nothing where `f` has a kink within the step.
pub(crate) fn slope(f: &dyn Fn(&Rows) -> f64, rows: &Rows, i: usize, k: usize) -> Option<f64> {
    let h = 1e-5;
    let at = |by: f64| {
        let mut moved = rows.clone();
        moved[i][k] += by;
        f(&moved)
    };
    let ([right, left], [far_right, far_left], middle) =
        ([at(h), at(-h)], [at(2.0 * h), at(-2.0 * h)], at(0.0));
    let (central, wide) = ((right - left) / (2.0 * h), (far_right - far_left) / (4.0 * h));
    // The slopes of the two sides differ in proportion to the step where the function is smooth.
    let (near, far) = ((right - 2.0 * middle + left) / h, (far_right - 2.0 * middle + far_left) / (2.0 * h));
    let smooth = (far - 2.0 * near).abs() <= 1e-6 * central.abs().max(1.0)
        && (central - wide).abs() <= 1e-5 * central.abs().max(1.0);
    // One step of Richardson's extrapolation: the error is of order h^4.
    smooth.then_some((4.0 * central - wide) / 3.0)
}
