//! Parts that are chosen by name: losses, networks, samplers, transforms and others, built in or the user's own.
//!
//! A *kind* of part (losses, say) is an object-safe trait, implemented by the configuration of each part, such as
//! `ContrastiveConfig`. [`kind!`](crate::kind) declares a type for "one of them" (such as `LossConfig`) that reads and writes a
//! section of a run file, and a list of what is built in. A program adds its own parts with `register`; from then on
//! their names mean the same everywhere in the process. A part that is used as a value needs no registration.
//!
//! Written parts have the format of serde's internally tagged enums: `{"name":"contrastive","margin":0.5}`.
//!
//! # Example
//!
//! ```
//! use gallerist_util::registry::{Named, Part};
//! use serde::{Deserialize, Serialize};
//!
//! /// What every shape can do.
//! pub trait Shape: Part {
//!     fn area(&self) -> f64;
//! }
//!
//! #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
//! #[serde(deny_unknown_fields, default)]
//! pub struct Square {
//!     side: f64,
//! }
//!
//! impl Default for Square {
//!     fn default() -> Self {
//!         Square { side: 1.0 }
//!     }
//! }
//!
//! impl Named for Square {
//!     const NAME: &'static str = "square";
//! }
//!
//! impl Shape for Square {
//!     fn area(&self) -> f64 {
//!         self.side * self.side
//!     }
//! }
//!
//! gallerist_util::kind! {
//!     /// `[shape]` of a file.
//!     pub struct AnyShape(dyn Shape), tag = "kind", default = Square;
//!     Square,
//! }
//!
//! // A part that another crate adds.
//! #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
//! struct Disc {
//!     radius: f64,
//! }
//!
//! impl Named for Disc {
//!     const NAME: &'static str = "disc";
//! }
//!
//! impl Shape for Disc {
//!     fn area(&self) -> f64 {
//!         std::f64::consts::PI * self.radius * self.radius
//!     }
//! }
//!
//! let text = "kind = \"disc\"\nradius = 2.0";
//! assert!(toml::from_str::<AnyShape>(text).is_err());
//! AnyShape::register::<Disc>()?;
//! let shape: AnyShape = toml::from_str(text).unwrap();
//! assert_eq!(shape.downcast_ref::<Disc>().unwrap().radius, 2.0);
//! assert!(shape.area() > 12.0);
//! assert_eq!(AnyShape::names(), ["square", "disc"]);
//! # Ok::<(), gallerist_util::registry::Taken>(())
//! ```

mod tagged;

use std::any::{Any, TypeId};
use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock};

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserializer, Serialize, Serializer};

/// The configuration of a part: plain data with a default and a name.
///
/// It is a struct with named fields (`struct Mine {}` where there are none).
pub trait Named:
    Serialize + DeserializeOwned + Default + Clone + PartialEq + Debug + Send + Sync + 'static
{
    /// The name in run files, in snake case.
    const NAME: &'static str;
}

/// What all configurations can do, whatever their type; implemented for every [`Named`] one.
pub trait Part: Any + Debug + Send + Sync + erased_serde::Serialize {
    /// The name in run files.
    fn name(&self) -> &'static str;

    /// The configuration as a value of its own type.
    fn as_any(&self) -> &dyn Any;

    /// Whether `other` is a configuration of the same type with the same values.
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<C: Named> Part for C {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<C>().is_some_and(|other| other == self)
    }
}

/// The first of the `reserved` keys that is also a parameter of `part`.
///
/// The same table of a run file holds the keys that all parts of a kind share and the parameters of one part, so their names
/// must differ.
pub fn reserved_parameter<'a>(part: &impl Serialize, reserved: &[&'a str]) -> Option<&'a str> {
    let parameters = toml::Table::try_from(part).ok()?;
    reserved.iter().copied().find(|key| parameters.contains_key(*key))
}

/// A name that is registered already, for another part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The name.
    pub name: &'static str,
    /// The type whose parts the name is for, e.g. `LossConfig`.
    pub kind: &'static str,
}

impl std::fmt::Display for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the name `{}` of a {} is registered already, for another part", self.name, self.kind)
    }
}

impl std::error::Error for Taken {}

/// How parts of one name are made.
#[derive(Debug)]
pub struct Entry<F: ?Sized> {
    /// The name in run files.
    pub name: &'static str,
    /// The type of the configuration.
    pub type_id: fn() -> TypeId,
    /// Reads a section, the name taken out.
    pub parse: fn(toml::Table) -> Result<Arc<F>, toml::de::Error>,
    /// The part with the default of each parameter.
    pub default: fn() -> Arc<F>,
}

impl<F: ?Sized> Clone for Entry<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ?Sized> Copy for Entry<F> {}

/// The parts of one kind by name: those that are built in, then those that were added, in the order of their addition.
#[derive(Debug)]
pub struct Registry<F: ?Sized + 'static> {
    kind: &'static str,
    tag: &'static str,
    built_in: &'static [Entry<F>],
    added: RwLock<Vec<Entry<F>>>,
}

impl<F: ?Sized + Part + 'static> Registry<F> {
    /// A registry of what is built in. `kind` is the name of the type in errors, `tag` the key whose value is the
    /// name of a part.
    pub const fn new(kind: &'static str, tag: &'static str, built_in: &'static [Entry<F>]) -> Self {
        Registry { kind, tag, built_in, added: RwLock::new(Vec::new()) }
    }

    /// All entries.
    pub fn entries(&self) -> Vec<Entry<F>> {
        let added = self.added.read().unwrap_or_else(PoisonError::into_inner);
        self.built_in.iter().chain(added.iter()).copied().collect()
    }

    /// All names.
    pub fn names(&self) -> Vec<&'static str> {
        self.entries().into_iter().map(|entry| entry.name).collect()
    }

    /// Adds a part. To add it twice has no effect.
    ///
    /// # Errors
    ///
    /// [`Taken`] where the name belongs to another type.
    pub fn add(&self, entry: Entry<F>) -> Result<(), Taken> {
        let mut added = self.added.write().unwrap_or_else(PoisonError::into_inner);
        match self.built_in.iter().chain(added.iter()).find(|known| known.name == entry.name) {
            None => {
                added.push(entry);
                Ok(())
            }
            Some(known) if (known.type_id)() == (entry.type_id)() => Ok(()),
            Some(_) => Err(Taken { name: entry.name, kind: self.kind }),
        }
    }

    /// Writes a part with its name as the first field.
    ///
    /// # Errors
    ///
    /// Those of the format.
    pub fn serialize<S: Serializer>(&self, part: &F, serializer: S) -> Result<S::Ok, S::Error> {
        erased_serde::serialize(part, tagged::Tagged { to: serializer, tag: self.tag, name: part.name() })
    }

    /// Reads a part.
    ///
    /// # Errors
    ///
    /// For a missing or unknown name, and those of the part: an unknown key, a value of the wrong type.
    pub fn deserialize<'de, D: Deserializer<'de>>(&self, deserializer: D) -> Result<Arc<F>, D::Error> {
        let mut table = tagged::table(deserializer, self.kind)?;
        let name = tagged::take_name::<D::Error>(&mut table, self.tag)?;
        let entries = self.entries();
        let Some(entry) = entries.iter().find(|entry| entry.name == name) else {
            return Err(tagged::unknown(&name, &self.names()));
        };
        (entry.parse)(table).map_err(|error| D::Error::custom(error.message().trim_end()))
    }
}

/// For [`kind!`](crate::kind).
#[doc(hidden)]
pub mod macro_support {
    pub use serde;
    pub use toml;
}

/// Declares the type of "one part of a kind", chosen by name, with the list of what is built in: one type a line.
/// See [`registry`](crate::registry) for an example.
///
/// The type is cheap to clone and dereferences to the trait of the kind. It is made from any configuration that
/// implements the trait (`From`), and given back as that by `downcast_ref`.
#[macro_export]
macro_rules! kind {
    (
        $(#[$doc:meta])*
        $vis:vis struct $kind:ident(dyn $part:path), tag = $tag:literal, default = $default:ty;
        $($(#[$built_in_doc:meta])* $built_in:ty),* $(,)?
    ) => {
        $(#[$doc])*
        #[derive(Clone)]
        $vis struct $kind(::std::sync::Arc<dyn $part>);

        const _: () = {
            use $crate::registry::macro_support::{serde, toml};
            use $crate::registry::{Entry, Named, Part, Registry, Taken};
            use ::std::sync::Arc;

            static REGISTRY: Registry<dyn $part> = Registry::new(
                ::std::stringify!($kind),
                $tag,
                &[$(Entry {
                    name: <$built_in as Named>::NAME,
                    type_id: ::std::any::TypeId::of::<$built_in>,
                    parse: |table: toml::Table| Ok(Arc::new(table.try_into::<$built_in>()?)),
                    default: || Arc::new(<$built_in as ::std::default::Default>::default()),
                }),*],
            );

            #[allow(dead_code, reason = "a private kind may need only some of these")]
            impl $kind {
                /// The names that run files can give: what is built in, then what was registered.
                $vis fn names() -> ::std::vec::Vec<&'static str> {
                    REGISTRY.names()
                }

                /// One part of each name, with the default of every parameter.
                $vis fn all_defaults() -> ::std::vec::Vec<Self> {
                    REGISTRY.entries().into_iter().map(|entry| $kind((entry.default)())).collect()
                }

                /// Adds a part, so that run files can name it, for the rest of the process. To add it twice has no
                /// effect.
                ///
                /// # Errors
                ///
                /// Where the name belongs to a part of another type.
                $vis fn register<C: Named + $part>() -> ::std::result::Result<(), Taken> {
                    REGISTRY.add(Entry {
                        name: C::NAME,
                        type_id: ::std::any::TypeId::of::<C>,
                        parse: |table: toml::Table| Ok(Arc::new(table.try_into::<C>()?)),
                        default: || Arc::new(C::default()),
                    })
                }

                /// The configuration as a value of its own type; `None` if it is of another type.
                $vis fn downcast_ref<C: Named + $part>(&self) -> ::std::option::Option<&C> {
                    Part::as_any(&*self.0).downcast_ref()
                }
            }

            impl<C: Named + $part> ::std::convert::From<C> for $kind {
                fn from(part: C) -> Self {
                    $kind(Arc::new(part))
                }
            }

            impl ::std::default::Default for $kind {
                fn default() -> Self {
                    $kind::from(<$default as ::std::default::Default>::default())
                }
            }

            impl ::std::ops::Deref for $kind {
                type Target = dyn $part;

                fn deref(&self) -> &Self::Target {
                    &*self.0
                }
            }

            impl ::std::fmt::Debug for $kind {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    ::std::fmt::Debug::fmt(&*self.0, f)
                }
            }

            impl ::std::cmp::PartialEq for $kind {
                fn eq(&self, other: &Self) -> bool {
                    Part::equals(&*self.0, Part::as_any(&*other.0))
                }
            }

            impl serde::Serialize for $kind {
                fn serialize<S: serde::Serializer>(&self, serializer: S) -> ::std::result::Result<S::Ok, S::Error> {
                    REGISTRY.serialize(&*self.0, serializer)
                }
            }

            impl<'de> serde::Deserialize<'de> for $kind {
                fn deserialize<D: serde::Deserializer<'de>>(
                    deserializer: D,
                ) -> ::std::result::Result<Self, D::Error> {
                    REGISTRY.deserialize(deserializer).map($kind)
                }
            }
        };
    };
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    trait Loss: Part {
        fn value(&self) -> f32;
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Margin {
        margin: f32,
        boundary: Option<f32>,
        inner: Vec<u32>,
    }

    impl Default for Margin {
        fn default() -> Self {
            Margin { margin: 0.1, boundary: None, inner: vec![1, 2] }
        }
    }

    impl Named for Margin {
        const NAME: &'static str = "margin";
    }

    impl Loss for Margin {
        fn value(&self) -> f32 {
            self.margin
        }
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Empty {}

    impl Named for Empty {
        const NAME: &'static str = "empty";
    }

    impl Loss for Empty {
        fn value(&self) -> f32 {
            0.0
        }
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Needy {
        count: usize,
    }

    impl Named for Needy {
        const NAME: &'static str = "needy";
    }

    impl Loss for Needy {
        fn value(&self) -> f32 {
            self.count as f32
        }
    }

    crate::kind! {
        /// Any of the losses of these tests.
        struct AnyLoss(dyn Loss), tag = "name", default = Margin;
        Margin,
        Empty,
        Needy,
    }

    /// What serde derives for the same parts.
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(tag = "name", rename_all = "snake_case")]
    enum Derived {
        Margin(Margin),
        Empty(Empty),
        Needy(Needy),
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Term<T> {
        weight: f64,
        #[serde(flatten)]
        loss: T,
    }

    fn pairs() -> [(AnyLoss, Derived); 4] {
        let margin = Margin { boundary: Some(0.3), ..Margin::default() };
        [
            (AnyLoss::default(), Derived::Margin(Margin::default())),
            (margin.clone().into(), Derived::Margin(margin)),
            (Empty {}.into(), Derived::Empty(Empty {})),
            (Needy { count: 3 }.into(), Derived::Needy(Needy { count: 3 })),
        ]
    }

    #[test]
    fn parts_are_written_as_tagged_enums_are() {
        for (any, derived) in pairs() {
            let json = serde_json::to_string(&any).unwrap();
            assert_eq!(json, serde_json::to_string(&derived).unwrap());
            assert_eq!(toml::to_string(&any).unwrap(), toml::to_string(&derived).unwrap());
            assert_eq!(serde_json::from_str::<AnyLoss>(&json).unwrap(), any);
            assert_eq!(toml::from_str::<AnyLoss>(&toml::to_string(&any).unwrap()).unwrap(), any);
            let (flat, flat_derived) = (Term { weight: 0.5, loss: any }, Term { weight: 0.5, loss: derived });
            let text = toml::to_string(&flat).unwrap();
            assert_eq!(text, toml::to_string(&flat_derived).unwrap());
            assert_eq!(toml::from_str::<Term<AnyLoss>>(&text).unwrap().loss, flat.loss);
        }
    }

    #[test]
    fn errors_have_the_words_of_tagged_enums() {
        let texts = [
            "margin = 1.0",
            "name = 3",
            "name = [1]",
            "name = \"other\"",
            "name = \"margin\"\nmargn = 1.0",
            "name = \"margin\"\nmargin = \"wide\"",
            "name = \"margin\"\ninner = 4",
            "name = \"needy\"",
            "name = \"needy\"\ncount = -1",
            "name = \"empty\"\nmargin = 1",
        ];
        for text in texts {
            let table: toml::Table = text.parse().unwrap();
            let ours = table.clone().try_into::<AnyLoss>().unwrap_err();
            let derived = table.try_into::<Derived>().unwrap_err();
            assert_eq!(ours.message().trim_end(), derived.message().trim_end(), "{text}");
        }
        let ours = toml::Value::Integer(3).try_into::<AnyLoss>().unwrap_err();
        assert_eq!(
            ours.message().trim_end(),
            "invalid type: integer `3`, expected internally tagged enum AnyLoss"
        );
    }

    #[test]
    fn a_part_can_be_registered_once_and_its_name_is_then_taken() {
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        struct Mine {}
        impl Named for Mine {
            const NAME: &'static str = "mine";
        }
        impl Shape for Mine {}
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        struct Other {}
        impl Named for Other {
            const NAME: &'static str = "mine";
        }
        impl Shape for Other {}
        trait Shape: Part {}
        crate::kind! {
            /// Any shape.
            struct AnyShape(dyn Shape), tag = "kind", default = Mine;
        }

        let json = serde_json::to_string(&AnyShape::default()).unwrap();
        assert_eq!(json, "{\"kind\":\"mine\"}");
        assert!(serde_json::from_str::<AnyShape>(&json).unwrap_err().to_string().contains("unknown variant"));
        AnyShape::register::<Mine>().unwrap();
        AnyShape::register::<Mine>().unwrap();
        assert_eq!(AnyShape::register::<Other>(), Err(Taken { name: "mine", kind: "AnyShape" }));
        assert_eq!(AnyShape::names(), ["mine"]);
        assert_eq!(serde_json::from_str::<AnyShape>(&json).unwrap(), AnyShape::from(Mine {}));
        assert_ne!(AnyShape::from(Mine {}), AnyShape::from(Other {}));
    }

    #[test]
    fn values_dereference_to_the_trait_and_come_back_as_what_they_were() {
        let loss = AnyLoss::from(Needy { count: 7 });
        assert_eq!((loss.name(), loss.value()), ("needy", 7.0));
        assert_eq!(loss.downcast_ref(), Some(&Needy { count: 7 }));
        assert_eq!(loss.downcast_ref::<Empty>(), None);
        assert_eq!(format!("{loss:?}"), "Needy { count: 7 }");
        let names: Vec<&str> = AnyLoss::all_defaults().iter().map(|loss| loss.name()).collect();
        assert_eq!(names, AnyLoss::names());
    }
}
