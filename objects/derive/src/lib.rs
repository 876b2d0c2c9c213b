//! The derives of `vgas-objects`, which exports and describes them: `Portable` and `Shareable`.
//!
//! Fields are checked in bodies, not by bounds: a bound on the type of a field would make a recursive type ask about itself for ever.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::{Data, DeriveInput, Error, Fields, Index, parse_macro_input};

/// The bytes of the type mean the same in every process of a job. All fields must be portable.
#[proc_macro_derive(Portable)]
pub fn portable(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    portable_of(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Nothing changes behind a shared reference, so that copies can be read. All fields must be shareable.
#[proc_macro_derive(Shareable)]
pub fn shareable(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    shareable_of(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// The fields of a type, or of each of its variants.
fn shapes(input: &DeriveInput) -> syn::Result<Vec<(TokenStream, &Fields)>> {
    match &input.data {
        Data::Struct(data) => Ok(vec![(quote!(Self), &data.fields)]),
        Data::Enum(data) => Ok(data
            .variants
            .iter()
            .map(|variant| {
                let name = &variant.ident;
                (quote!(Self::#name), &variant.fields)
            })
            .collect()),
        Data::Union(_) => Err(Error::new_spanned(
            input,
            "a union does not say which of its fields it has: use an enum in the global heap",
        )),
    }
}

/// A value in the heap outlives its creator, in other processes as well: it borrows nothing.
fn borrows_nothing(input: &DeriveInput) -> syn::Result<()> {
    match input.generics.lifetimes().next() {
        None => Ok(()),
        Some(lifetime) => Err(Error::new_spanned(
            lifetime,
            "what is in the global heap goes to other processes, and cannot borrow from this one: have it own what it has, as a `DBox`, `DVec` or `DString`",
        )),
    }
}

/// The generics, each type parameter with this bound.
fn bounded(input: &DeriveInput, bound: &TokenStream) -> syn::Generics {
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(syn::parse_quote!(#bound));
    }
    generics
}

/// Returns the words of the `repr` attributes of a type, and the integer type of its discriminants.
fn representation(input: &DeriveInput) -> syn::Result<(Vec<String>, TokenStream)> {
    const INTEGERS: [&str; 12] =
        ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize"];
    let (mut words, mut integer) = (Vec::new(), quote!(::core::primitive::isize));
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            let mut word = meta.path.to_token_stream().to_string();
            if INTEGERS.contains(&&*word) {
                let named = &meta.path;
                integer = quote!(::core::primitive::#named);
            }
            // As in `align(8)`.
            if meta.input.peek(syn::token::Paren) {
                word += &meta.input.parse::<proc_macro2::Group>()?.to_string();
            }
            words.push(word);
            Ok(())
        })?;
    }
    words.sort();
    Ok((words, integer))
}

/// Describes the fields of a type; of an enum, the variants in their order, with their discriminants.
fn described_of(input: &DeriveInput) -> syn::Result<TokenStream> {
    let fields_of = |variant: Option<String>, fields: &Fields| -> TokenStream {
        let described = fields.iter().enumerate().map(|(at, field)| {
            let (member, ty) = match &field.ident {
                Some(name) => (quote!(#name), &field.ty),
                None => (Index::from(at).into_token_stream(), &field.ty),
            };
            let (name, offset) = match &variant {
                None => {
                    let offset = quote!(::core::option::Option::Some(::core::mem::offset_of!(Self, #member)));
                    (member.to_string(), offset)
                }
                Some(variant) => (format!("{variant}.{member}"), quote!(::core::option::Option::None)),
            };
            quote! {
                layout.field::<Self, #ty>(#name, #offset);
                <#ty as ::vgas_objects::Portable>::describe(layout);
            }
        });
        described.collect()
    };
    let data = match &input.data {
        Data::Enum(data) => data,
        Data::Struct(data) => return Ok(fields_of(None, &data.fields)),
        Data::Union(_) => return Ok(TokenStream::new()),
    };
    let (words, integer) = representation(input)?;
    let described_as = (!words.is_empty()).then(|| format!("as {}", words.join(" ")));
    let described_as = described_as.map(|words| quote!(layout.property::<Self>(#words);));
    let variants = data.variants.iter().enumerate().map(|(at, variant)| {
        let name = variant.ident.to_string();
        let set = match (&variant.discriminant, at) {
            (Some((_, value)), _) => quote!(let discriminant: #integer = #value;),
            (None, 0) => quote!(let discriminant: #integer = 0;),
            (None, _) => quote!(let discriminant: #integer = discriminant.wrapping_add(1);),
        };
        let described = fields_of(Some(name.clone()), &variant.fields);
        quote! {
            #set
            layout.variant::<Self>(#name, discriminant as ::core::primitive::i128);
            #described
        }
    });
    Ok(described_as.into_iter().chain(variants).collect())
}

/// Does something with each field that a value has. Compiles only if the fields are those that the derive has seen, of the same types:
/// an attribute that stands behind the derive changes a type after that.
fn each_field(
    shapes: &[(TokenStream, &Fields)],
    visit: &dyn Fn(&proc_macro2::Ident) -> TokenStream,
) -> TokenStream {
    let arms = shapes.iter().map(|(path, fields)| {
        let bindings: Vec<_> = (0..fields.len()).map(|at| format_ident!("field_{at}")).collect();
        let types = fields.iter().map(|field| &field.ty);
        let members = fields.iter().zip(0..).map(|(field, at)| match &field.ident {
            Some(name) => quote!(#name),
            None => {
                let index = Index::from(at);
                quote!(#index)
            }
        });
        let visited = bindings.iter().map(visit);
        quote! {
            #path { #(#members: #bindings),* } => {
                // A reference could become one to another type; a pointer does not.
                #( let _: *const #types = &raw const *#bindings; )*
                #( #visited )*
            }
        }
    });
    let arms: Vec<_> = arms.collect();
    // A type without variants has no values.
    if arms.is_empty() { quote!(match *self {}) } else { quote!(match self { #(#arms)* }) }
}

fn portable_of(input: &DeriveInput) -> syn::Result<TokenStream> {
    borrows_nothing(input)?;
    let bound = quote!(::vgas_objects::Portable);
    let generics = bounded(input, &bound);
    let (implemented, types, conditions) = generics.split_for_impl();
    let name = &input.ident;
    let shapes = shapes(input)?;
    let fields: Vec<_> = shapes.iter().flat_map(|(_, fields)| fields.iter().map(|field| &field.ty)).collect();
    let described = described_of(input)?;
    // The offsets of a variant's parts are unknown.
    let is_struct = matches!(input.data, Data::Struct(_));
    let parts: Vec<_> = shapes
        .iter()
        .filter(|_| is_struct)
        .flat_map(|(_, fields)| {
            fields.iter().enumerate().map(|(at, field)| {
                let member = match &field.ident {
                    Some(name) => name.to_token_stream(),
                    None => Index::from(at).into_token_stream(),
                };
                (&field.ty, member)
            })
        })
        .collect();
    let has_ties = parts.iter().map(|(ty, _)| quote!(<#ty as #bound>::HAS_TIES));
    let ties =
        parts.iter().map(|(ty, member)| quote!(ties.part::<#ty>(::core::mem::offset_of!(Self, #member));));
    let body_of =
        |visited: TokenStream| each_field(&shapes, &|field| quote!(#bound::#visited(#field, visit);));
    let (body, weighed) = (body_of(quote!(links)), body_of(quote!(weigh)));
    Ok(quote! {
        // SAFETY: all fields are portable, which `links` could not be compiled without, and all their links are visited.
        #[automatically_derived]
        unsafe impl #implemented #bound for #name #types #conditions {
            const HAS_LINKS: ::core::primitive::bool = false #(|| <#fields as #bound>::HAS_LINKS)*;
            #[allow(unused_variables)]
            fn links(&self, visit: &mut dyn ::core::ops::FnMut(&::vgas_objects::Link)) {
                #body
            }
            #[allow(unused_variables)]
            fn weigh(&self, visit: &mut dyn ::core::ops::FnMut(&::vgas_objects::Link, ::core::primitive::u64)) {
                #weighed
            }
            const HAS_TIES: ::core::primitive::bool = false #(|| #has_ties)*;
            #[allow(unused_variables)]
            fn ties(ties: &mut ::vgas_objects::Ties) {
                #(#ties)*
            }
            fn glue(glue: &mut ::vgas_objects::Glue) {
                // For a type that does not implement `Drop`, the trait's constant is meant.
                #[allow(unused_imports)]
                use ::vgas_objects::NoDrop as _;
                if ::vgas_objects::DropOf::<Self>::IS_OWN {
                    glue.own();
                }
                #(glue.part::<#fields>();)*
            }
            fn describe(layout: &mut ::vgas_objects::Layout) {
                if layout.begin::<Self>() {
                    #described
                }
            }
        }
    })
}

fn shareable_of(input: &DeriveInput) -> syn::Result<TokenStream> {
    borrows_nothing(input)?;
    let bound = quote!(::vgas_objects::Shareable);
    let generics = bounded(input, &bound);
    let (implemented, types, conditions) = generics.split_for_impl();
    let name = &input.ident;
    let body = each_field(&shapes(input)?, &|field| quote!(is_shareable(#field);));
    Ok(quote! {
        // SAFETY: all fields are shareable, which `check` could not be compiled without.
        #[automatically_derived]
        unsafe impl #implemented #bound for #name #types #conditions {
            fn check(&self) {
                #[allow(dead_code)]
                fn is_shareable<Field: #bound>(_: &Field) {}
                #body
            }
        }
    })
}
