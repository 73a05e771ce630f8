//! Enums whose values are chosen by name in run files and options: one list per enum.

/// An enum that [`named_values!`](macro@crate::named_values) declares.
pub trait NamedValue: Copy + PartialEq + Send + Sync + 'static {
    /// All values, in the order in which options list them.
    const ALL: &'static [Self];

    /// The name in run files, in snake case.
    fn name(self) -> &'static str;

    /// One line for the help of an option; empty if the name needs no explanation.
    fn help(self) -> &'static str;

    /// The name as the value of an option: with hyphens instead of underscores.
    fn option(self) -> String {
        self.name().replace('_', "-")
    }
}

/// Declares an enum of values without fields, each with its name and its help.
///
/// The names are those that serde reads and writes. The command line builds its option from the list. The crate that
/// uses this macro depends on serde.
///
/// ```
/// gallerist_util::named_values! {
///     /// How several rows become one.
///     #[derive(Default)]
///     pub enum Pooling {
///         /// The mean.
///         #[default]
///         Average = "average", "Mean of each dimension";
///         /// The largest value.
///         Max = "max", "Maximum of each dimension";
///     }
/// }
///
/// assert_eq!(Pooling::ALL, [Pooling::Average, Pooling::Max]);
/// assert_eq!(Pooling::Max.help(), "Maximum of each dimension");
/// assert_eq!(serde_json::to_string(&Pooling::Max).unwrap(), r#""max""#);
/// ```
#[macro_export]
macro_rules! named_values {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $type:ident {
            $($(#[$of_value:meta])* $value:ident = $name:literal, $help:literal;)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        $visibility enum $type {
            $($(#[$of_value])* #[serde(rename = $name)] $value,)+
        }

        impl $type {
            /// All values, in the order in which options list them.
            $visibility const ALL: &'static [Self] = &[$(Self::$value),+];

            /// The name in run files and options.
            $visibility const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            /// One line for the help of an option; empty if the name needs no explanation.
            $visibility const fn help(self) -> &'static str {
                match self {
                    $(Self::$value => $help,)+
                }
            }
        }

        impl $crate::named_values::NamedValue for $type {
            const ALL: &'static [Self] = Self::ALL;

            fn name(self) -> &'static str {
                self.name()
            }

            fn help(self) -> &'static str {
                self.help()
            }
        }
    };
}
