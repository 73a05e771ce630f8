//! The ranks exchange and sum the gradients of a network during the backward pass.
//!
//! The backward pass gives each gradient to a thread as soon as it has it. The thread sums them bucket by bucket over a
//! second connection of the ranks. The buckets follow one order on all ranks, that of rank 0's first backward pass. A sum is
//! that of its values alone, so its bits do not depend on the buckets.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use gallerist_collective::{Collective, bytes_of, numbers_of};

use crate::Result;
use crate::ranks::replace_gradients;
use crate::tap::{Given, tap};

/// Values from which a bucket is exchanged.
const BUCKET: usize = 1 << 20;

/// The order in which the backward pass of rank 0 has the gradients.
#[derive(Clone, Debug, Default)]
pub(super) struct Order(Arc<Vec<usize>>);

/// The sums of one backward pass.
#[derive(Debug)]
pub(super) struct GradientSums {
    to: Sender<Given>,
    /// The parameters by their places.
    places: Vec<ParamId>,
    thread: Option<JoinHandle<gallerist_collective::Result<Sums>>>,
}

/// Sums by their places.
#[derive(Debug)]
struct Sums {
    values: HashMap<usize, Vec<f32>>,
    /// The places in the order in which their gradients came.
    came: Vec<usize>,
}

impl GradientSums {
    /// Of a network on `device`; nothing if the ranks have no second connection, or where gradients are not on the CPU.
    pub(super) fn start(ranks: &dyn Collective, device: &Device, order: &Order) -> Option<Self> {
        let second = ranks.second().filter(|_| ranks.size() > 1 && *device == Device::flex().autodiff())?;
        let (to, from) = channel();
        let order = order.0.clone();
        let thread = std::thread::spawn(move || sum(&*second, &from, &order));
        Some(GradientSums { to, places: Vec::new(), thread: Some(thread) })
    }

    /// The network whose backward pass gives its gradients here.
    pub(super) fn tapped<M: Module>(&mut self, network: M) -> M {
        self.places.clear();
        network.map(&mut Taps { to: &self.to, places: &mut self.places })
    }

    /// Replaces the gradients by their sums. All ranks learn the order of the gradients with the first ones.
    pub(super) fn finish<M: Module>(
        mut self,
        ranks: &dyn Collective,
        network: &M,
        gradients: &mut GradientsParams,
        order: &mut Order,
    ) -> Result<()> {
        let Sums { values, came } = self.end().expect("it has not ended")?;
        if order.0.is_empty() {
            let places: Vec<u64> = came.iter().map(|&place| place as u64).collect();
            let mut bytes = bytes_of(&places).to_vec();
            ranks.broadcast(&mut bytes)?;
            order.0 = Arc::new(numbers_of::<u64>(&bytes).into_iter().map(|place| place as usize).collect());
        }
        let sums = values.into_iter().map(|(place, values)| (self.places[place], values)).collect();
        replace_gradients(network, gradients, sums);
        Ok(())
    }

    fn end(&mut self) -> Option<gallerist_collective::Result<Sums>> {
        let thread = self.thread.take()?;
        // A thread that has failed does not listen any more.
        let _ = self.to.send(Given::End);
        Some(thread.join().expect("sums do not panic"))
    }
}

/// Where there is no backward pass.
impl Drop for GradientSums {
    fn drop(&mut self) {
        self.end();
    }
}

/// Receives gradients until the end and sums them in this order, those without a place in it last.
fn sum(
    ranks: &dyn Collective,
    from: &Receiver<Given>,
    order: &[usize],
) -> gallerist_collective::Result<Sums> {
    let mut sums = Sums { values: HashMap::new(), came: Vec::new() };
    let mut waiting = BTreeMap::new();
    let mut bucket = Bucket::default();
    let mut next = order.iter();
    let mut expected = next.next();
    while let Ok(Given::Gradient(place, values)) = from.recv() {
        sums.came.push(place);
        waiting.insert(place, values);
        while let Some((place, values)) = expected.and_then(|place| waiting.remove_entry(place)) {
            bucket.add(place, values);
            expected = next.next();
            if bucket.values.len() >= BUCKET {
                bucket.sum(ranks, &mut sums)?;
            }
        }
    }
    // A gradient of the order did not come, or there is no order yet.
    for (place, values) in expected.into_iter().chain(next).filter_map(|place| waiting.remove_entry(place)) {
        bucket.add(place, values);
    }
    waiting.into_iter().for_each(|(place, values)| bucket.add(place, values));
    bucket.sum(ranks, &mut sums)?;
    Ok(sums)
}

/// Gradients that are exchanged together.
#[derive(Default)]
struct Bucket {
    values: Vec<f32>,
    /// Places and numbers of values.
    parts: Vec<(usize, usize)>,
}

impl Bucket {
    fn add(&mut self, place: usize, values: Vec<f32>) {
        self.parts.push((place, values.len()));
        self.values.extend(values);
    }

    /// Sums what it has, and is empty.
    fn sum(&mut self, ranks: &dyn Collective, to: &mut Sums) -> gallerist_collective::Result<()> {
        if self.parts.is_empty() {
            return Ok(());
        }
        ranks.all_reduce(&mut self.values)?;
        let mut rest = &self.values[..];
        for (place, length) in self.parts.drain(..) {
            let (values, others) = rest.split_at(length);
            to.values.insert(place, values.to_vec());
            rest = others;
        }
        self.values.clear();
        Ok(())
    }
}

/// Taps every parameter. Its place is its number: ids differ between ranks.
struct Taps<'a> {
    to: &'a Sender<Given>,
    places: &'a mut Vec<ParamId>,
}

impl ModuleMapper for Taps<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let place = self.places.len();
        self.places.push(param.id);
        param.map(|tensor| tap(tensor, place, self.to.clone()))
    }
}

#[cfg(test)]
mod tests {
    use burn::module::ModuleVisitor;
    use burn::tensor::TensorData;
    use gallerist_nn::{AnyEmbedder, ConvBlocksConfig, InputShape, NetworkConfig};
    use gallerist_testkit::ranks::with_ranks;

    use super::*;
    use crate::ranks::sum_gradients;

    /// The gradients by the parameters, in their order.
    fn values(network: &AnyEmbedder, gradients: &GradientsParams) -> Vec<Vec<f32>> {
        struct Collect<'a>(&'a GradientsParams, Vec<Vec<f32>>);
        impl ModuleVisitor for Collect<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let gradient = self.0.get::<D>(param.id);
                self.1.extend(gradient.map(|gradient| gradient.into_data().try_into_vec::<f32>().unwrap()));
            }
        }
        let mut collect = Collect(gradients, Vec::new());
        network.visit(&mut collect);
        collect.1
    }

    #[test]
    fn sums_have_the_bits_of_an_exchange_after_the_backward_pass() {
        let found = with_ranks(3, |ranks| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            pool.install(|| {
                let device = Device::flex().autodiff();
                let config: NetworkConfig = ConvBlocksConfig { dimensions: 5, ..Default::default() }.into();
                let shape = InputShape { channels: 1, height: 16, width: 16 };
                let network = config.init(shape, 1, &device).unwrap();
                let images: Vec<f32> =
                    (0..4 * 256).map(|i| ((i * (ranks.rank() + 2)) as f32).sin()).collect();
                let images = Tensor::<4>::from_data(TensorData::new(images, [4, 1, 16, 16]), &device);
                let backward = |through: &AnyEmbedder| {
                    let [output] = &through.forward(images.clone())[..] else { panic!("one head") };
                    let mut gradients = output.clone().powi_scalar(3).sum().backward();
                    GradientsParams::from_module(&mut gradients, &network)
                };
                let mut after = backward(&network);
                sum_gradients(&*ranks, &network, &mut after).unwrap();
                let after = values(&network, &after);
                assert!(after.len() > 4 && after.iter().flatten().any(|value| *value != 0.0));
                let mut order = Order::default();
                // The first pass learns the order.
                for pass in 0..2 {
                    let mut sums = GradientSums::start(&*ranks, &device, &order).unwrap();
                    let mut gradients = backward(&sums.tapped(network.clone()));
                    sums.finish(&*ranks, &network, &mut gradients, &mut order).unwrap();
                    assert_eq!(order.0.len(), after.len());
                    assert!(values(&network, &gradients) == after, "pass {pass}");
                }
                // Without a backward pass, the thread ends without an exchange.
                drop(GradientSums::start(&*ranks, &device, &order));
                after
            })
        });
        assert!(found.iter().all(|after| *after == found[0]));
    }
}
