//! Leaves and small shapes of a scenario file that remember where they stand in it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::error::Mark;

/// Any scalar, as text, and its place.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub value: String,
    pub at: Mark,
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<String>::deserialize(deserializer)?;
        Ok(Self {
            value: spanned.value,
            at: spanned.referenced.into(),
        })
    }
}

impl JsonSchema for Text {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// One text, or a list of them.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    pub at: Mark,
    pub shape: WordsShape,
}

#[derive(Clone, Debug)]
pub(crate) enum WordsShape {
    One(String),
    Many(Vec<Text>),
}

impl Words {
    /// The texts, a single one as a list of one.
    pub fn items(&self) -> Vec<Text> {
        match &self.shape {
            WordsShape::One(value) => vec![Text {
                value: value.clone(),
                at: self.at,
            }],
            WordsShape::Many(items) => items.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<WordsShape>::deserialize(deserializer)?;
        Ok(Self {
            at: spanned.referenced.into(),
            shape: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for WordsShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = WordsShape;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<WordsShape, E> {
                Ok(WordsShape::One(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<WordsShape, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(WordsShape::Many(items))
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

impl JsonSchema for Words {
    fn schema_name() -> Cow<'static, str> {
        "Words".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let item = serde_json::json!({"type": ["string", "number"]});
        schemars::json_schema!({
            "description": "A text, or a list of texts.",
            "anyOf": [{"type": "string"}, {"type": "array", "items": item}]
        })
    }
}

/// A mapping from names to `V` in the order of the file.
#[derive(Clone, Debug)]
pub(crate) struct Entries<V>(pub Vec<(Text, V)>);

impl<V> Default for Entries<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Entries<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Mapping<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Mapping<V> {
            type Value = Entries<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<V>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Mapping(PhantomData))
    }
}

impl<V: JsonSchema> JsonSchema for Entries<V> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("MapOf{}", V::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({"type": "object", "additionalProperties": generator.subschema_for::<V>()})
    }
}

/// Either a short text or the mapping `M` that spells it out.
#[derive(Clone, Debug)]
pub(crate) enum ShortOr<M> {
    Short(String),
    Long(M),
}

/// A [`ShortOr`] with its place.
#[derive(Clone, Debug)]
pub(crate) struct Flexible<M> {
    pub at: Mark,
    pub shape: ShortOr<M>,
}

impl<'de, M: Deserialize<'de>> Deserialize<'de> for Flexible<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<ShortOr<M>>::deserialize(deserializer)?;
        Ok(Self {
            at: spanned.referenced.into(),
            shape: spanned.value,
        })
    }
}

impl<'de, M: Deserialize<'de>> Deserialize<'de> for ShortOr<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape<M>(PhantomData<M>);
        impl<'de, M: Deserialize<'de>> Visitor<'de> for Shape<M> {
            type Value = ShortOr<M>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a mapping")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ShortOr<M>, E> {
                Ok(ShortOr::Short(text.to_owned()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<ShortOr<M>, E> {
                Ok(ShortOr::Short(number.to_string()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<ShortOr<M>, E> {
                Ok(ShortOr::Short(number.to_string()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ShortOr<M>, A::Error> {
                M::deserialize(de::value::MapAccessDeserializer::new(map)).map(ShortOr::Long)
            }
        }
        deserializer.deserialize_any(Shape(PhantomData))
    }
}

impl<M: JsonSchema> JsonSchema for Flexible<M> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("ShortOr{}", M::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let long = generator.subschema_for::<M>();
        schemars::json_schema!({"anyOf": [{"type": ["string", "integer"]}, long]})
    }
}
