// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the table of parameters, the type of the checked values and their check out of one list of rows. Grade: setup.

/// The names and docs of the table and of the type; then the rows.
macro_rules! table {
    (@type Count) => { u64 };
    (@type Text) => { String };
    (@type Flag) => { bool };
    (@prefix Pml) => { "pml_ibex_" };
    (@prefix $other:ident) => { "btl_ibex_" };
    (
        $(#[$of_table:meta])* $table:ident;
        $(#[$of_type:meta])* $type:ident;
        $( $name:ident [$faces:ident]: $kind:ident { $($bounds:tt)* }, $unit:literal, level $level:literal, $scope:ident $writable:ident, $help:literal, $effect:literal; )*
    ) => {
        $(#[$of_table])*
        pub static $table: &[$crate::tunables::Row] = &[$(
            $crate::tunables::Row {
                faces: $crate::tunables::Faces::$faces,
                name: stringify!($name),
                kind: $crate::tunables::Kind::$kind { $($bounds)* },
                unit: $unit,
                help: $help,
                effect: $effect,
                level: $level,
                scope: $crate::tunables::Scope::$scope,
                writable: $crate::tunables::Writable::$writable,
            },
        )*];

        $(#[$of_type])*
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub struct $type {
            $(
                #[doc = concat!("The checked value of `", table!(@prefix $faces), stringify!($name), "`.")]
                pub $name: table!(@type $kind),
            )*
        }

        impl $type {
            pub(super) fn from_rows(values: &[$crate::tunables::Value]) -> Result<$type, $crate::tunables::OutOfBounds> {
                let mut values = values.iter();
                let mut rows = $table.iter();
                Ok($type {
                    $( $name: {
                        let row = rows.next().expect("one per field");
                        match row.checked(values.next())? {
                            $crate::tunables::Value::$kind(value) => value.clone(),
                            other => return Err($crate::tunables::OutOfBounds::value(row, other)),
                        }
                    }, )*
                })
            }
        }
    };
}
