//! A list that is almost always one element long and then needs no allocation.

/// None, one, or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SmallList<T> {
    /// Nothing.
    #[default]
    None,
    /// One element, stored in place.
    One(T),
    /// Several elements.
    Many(Vec<T>),
}

impl<T> SmallList<T> {
    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(element) => std::slice::from_ref(element),
            Self::Many(elements) => elements,
        }
    }

    /// Hands all elements over, in order.
    pub fn for_each(self, mut take: impl FnMut(T)) {
        match self {
            Self::None => {}
            Self::One(element) => take(element),
            Self::Many(elements) => elements.into_iter().for_each(take),
        }
    }

    /// Appends one.
    pub fn push(&mut self, element: T) {
        if let Self::Many(elements) = self {
            return elements.push(element);
        }
        *self = match std::mem::take(self) {
            Self::One(first) => Self::Many(vec![first, element]),
            _ => Self::One(element),
        };
    }
}

impl<T> IntoIterator for SmallList<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            Self::None => (None, Vec::new()),
            Self::One(element) => (Some(element), Vec::new()),
            Self::Many(elements) => (None, elements),
        };
        one.into_iter().chain(many)
    }
}

impl<T> From<T> for SmallList<T> {
    fn from(element: T) -> Self {
        Self::One(element)
    }
}

impl<T> FromIterator<T> for SmallList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut elements = elements.into_iter();
        match (elements.next(), elements.next()) {
            (None, _) => Self::None,
            (Some(element), None) => Self::One(element),
            (Some(first), Some(second)) => {
                let mut many = Vec::with_capacity(2 + elements.size_hint().0);
                many.extend([first, second]);
                many.extend(elements);
                Self::Many(many)
            }
        }
    }
}
