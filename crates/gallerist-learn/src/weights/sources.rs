//! Weights that can be had in public.

/// A file of weights in public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// What it is called here.
    pub name: &'static str,
    /// Where it is.
    pub url: &'static str,
    /// Its SHA-256, 64 hexadecimal digits.
    pub sha256: &'static str,
    /// The `[network]` it fits.
    pub network: &'static str,
    /// What it was trained on, and how the images were prepared.
    pub about: &'static str,
}

const IMAGENET: &str = "ImageNet-1k; RGB 224, mean 0.485 0.456 0.406, std 0.229 0.224 0.225";

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
    },
    Source {
        name: "resnet34-v1",
        url: "https://download.pytorch.org/models/resnet34-b627a593.pth",
        sha256: "b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f",
        network: "kind = \"resnet\", depth = 34",
        about: IMAGENET,
    },
    Source {
        name: "resnet50-v1",
        url: "https://download.pytorch.org/models/resnet50-0676ba61.pth",
        sha256: "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
        network: "kind = \"resnet\", depth = 50",
        about: IMAGENET,
    },
    Source {
        name: "resnet50-v2",
        url: "https://download.pytorch.org/models/resnet50-11ad3fa6.pth",
        sha256: "11ad3fa62ca79e40addfd354a8ec4b7c75143b3038b8d2a807fbc68deab379ca",
        network: "kind = \"resnet\", depth = 50",
        about: IMAGENET,
    },
    Source {
        name: "googlenet-v1",
        url: "https://download.pytorch.org/models/googlenet-1378be20.pth",
        sha256: "1378be20a8e875cf1568b8a71654e704449655e34711a959a38b04fb34905cef",
        network: "kind = \"googlenet\"",
        about: "ImageNet-1k; RGB 224, mean 0.5, std 0.5",
    },
    Source {
        name: "bn_inception",
        url: "http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth",
        sha256: "52deb473314542a5c2f87e9e6f26f4ca42fe863d15f986414dbae8c2dfdd2353",
        network: "kind = \"bn_inception\"",
        about: "ImageNet-1k; BGR 224, range 255, mean 104 117 123",
    },
    Source {
        name: "mobilenet_v2-v1",
        url: "https://download.pytorch.org/models/mobilenet_v2-b0353104.pth",
        sha256: "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
        network: "kind = \"mobilenet_v2\"",
        about: IMAGENET,
    },
    Source {
        name: "mobilenet_v2-v2",
        url: "https://download.pytorch.org/models/mobilenet_v2-7ebf99e0.pth",
        sha256: "7ebf99e03e254b273379b23edca7ec0da9f48273b23a332b93c1c99d49e86e8f",
        network: "kind = \"mobilenet_v2\"",
        about: IMAGENET,
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
