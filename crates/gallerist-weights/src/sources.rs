//! Public weights.

use super::described;
use super::preprocessing::Preprocessing;

/// A public file of weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Source {
    /// Its name on the command line.
    pub name: &'static str,
    /// Where it is.
    pub url: &'static str,
    /// Its SHA-256, 64 hexadecimal digits.
    pub sha256: &'static str,
    /// The `[network]` it fits.
    pub network: &'static str,
    /// Its training data.
    pub about: &'static str,
    /// The preparation of images, as its publisher gives it.
    pub images: Images,
}

/// The preparation of images as the publisher of weights gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Images {
    /// Height and width.
    pub side: usize,
    /// Subtracted from each channel.
    pub mean: [f32; 3],
    /// Divides each channel.
    pub std: [f32; 3],
    /// Value of a white pixel before that.
    pub range: f32,
    /// Blue first, red last.
    pub bgr: bool,
}

impl From<Images> for Preprocessing {
    fn from(images: Images) -> Self {
        let Images { side, mean, std, range, bgr } = images;
        Preprocessing { mean: mean.to_vec(), std: std.to_vec(), range, bgr, ..Preprocessing::rgb(side) }
    }
}

/// torchvision's, and the model zoo's of MXNet, which also has these values for its MobileNetV2.
const TORCHVISION: Images =
    Images { side: 224, mean: described::IMAGENET.0, std: described::IMAGENET.1, range: 1.0, bgr: false };

/// torchvision's `GoogLeNet_Weights`, whose weights come from TF-Slim: it transforms its input to these values.
const GOOGLENET: Images =
    Images { side: 224, mean: described::HALF.0, std: described::HALF.1, range: 1.0, bgr: false };

/// `pretrained_settings` of `bninception` in Cadene's pretrained-models.pytorch, the publisher of the file. The Caffe
/// models of the papers subtract 104 117 123; the difference is 5 of 255 in red.
pub const BN_INCEPTION: Images =
    Images { side: 224, mean: [104.0, 117.0, 128.0], std: [1.0; 3], range: 255.0, bgr: true };

const IMAGENET: &str = "ImageNet-1k";

/// torchvision's weights of the networks of this crate, and the BN-Inception that the papers start from.
///
/// The checksums are those that other projects have published of the files, and begin with the digits that
/// their makers put into the names.
pub const SOURCES: &[Source] = &[
    Source {
        name: "resnet18-v1",
        url: "https://download.pytorch.org/models/resnet18-f37072fd.pth",
        sha256: "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
        network: "kind = \"resnet\", depth = 18",
        about: IMAGENET,
        images: TORCHVISION,
    },
    Source {
        name: "resnet34-v1",
        url: "https://download.pytorch.org/models/resnet34-b627a593.pth",
        sha256: "b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f",
        network: "kind = \"resnet\", depth = 34",
        about: IMAGENET,
        images: TORCHVISION,
    },
    Source {
        name: "resnet50-v1",
        url: "https://download.pytorch.org/models/resnet50-0676ba61.pth",
        sha256: "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
        network: "kind = \"resnet\", depth = 50",
        about: IMAGENET,
        images: TORCHVISION,
    },
    Source {
        name: "resnet50-v2",
        url: "https://download.pytorch.org/models/resnet50-11ad3fa6.pth",
        sha256: "11ad3fa62ca79e40addfd354a8ec4b7c75143b3038b8d2a807fbc68deab379ca",
        network: "kind = \"resnet\", depth = 50",
        about: IMAGENET,
        images: TORCHVISION,
    },
    Source {
        name: "googlenet-v1",
        url: "https://download.pytorch.org/models/googlenet-1378be20.pth",
        sha256: "1378be20a8e875cf1568b8a71654e704449655e34711a959a38b04fb34905cef",
        network: "kind = \"googlenet\"",
        about: IMAGENET,
        images: GOOGLENET,
    },
    Source {
        name: "bn_inception",
        url: "http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth",
        sha256: "52deb473314542a5c2f87e9e6f26f4ca42fe863d15f986414dbae8c2dfdd2353",
        network: "kind = \"bn_inception\"",
        about: IMAGENET,
        images: BN_INCEPTION,
    },
    Source {
        name: "mobilenet_v2-v1",
        url: "https://download.pytorch.org/models/mobilenet_v2-b0353104.pth",
        sha256: "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
        network: "kind = \"mobilenet_v2\"",
        about: IMAGENET,
        images: TORCHVISION,
    },
    Source {
        name: "mobilenet_v2-v2",
        url: "https://download.pytorch.org/models/mobilenet_v2-7ebf99e0.pth",
        sha256: "7ebf99e03e254b273379b23edca7ec0da9f48273b23a332b93c1c99d49e86e8f",
        network: "kind = \"mobilenet_v2\"",
        about: IMAGENET,
        images: TORCHVISION,
    },
];

impl Source {
    /// The source of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SOURCES.iter().find(|source| source.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_the_values_of_this_list() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/networks.md");
        let documented =
            std::fs::read_to_string(path).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        for images in SOURCES.iter().map(|source| source.images) {
            let list = |values: [f32; 3]| match values {
                [a, b, c] if a == b && b == c => format!("{a}"),
                values => format!("[{}]", values.map(|value| value.to_string()).join(", ")),
            };
            let mean = list(images.mean);
            assert!(documented.contains(&mean), "docs/networks.md lacks the mean {mean}");
        }
        assert!(!documented.contains("104, 117, 123]"), "two means for BN-Inception");
        let shown = Preprocessing::from(BN_INCEPTION).to_string();
        assert_eq!(shown, "BGR 224, range 255, mean 104 117 128");
    }

    #[test]
    fn a_checksum_agrees_with_the_digits_in_the_files_name() {
        for (i, source) in SOURCES.iter().enumerate() {
            let file = source.url.rsplit('/').next().unwrap();
            let digits = file.rsplit_once('-').unwrap().1.trim_end_matches(".pth");
            assert!(source.sha256.starts_with(digits), "{}", source.name);
            assert_eq!(source.sha256.len(), 64);
            assert!(SOURCES[..i].iter().all(|other| other.name != source.name));
        }
    }
}
