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

/// What is in the heap outlives who has made it, in other processes, too: it borrows nothing.
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

fn portable_of(input: &DeriveInput) -> syn::Result<TokenStream> {
    borrows_nothing(input)?;
    let bound = quote!(::vgas_objects::Portable);
    let generics = bounded(input, &bound);
    let (implemented, types, conditions) = generics.split_for_impl();
    let name = &input.ident;
    let shapes = shapes(input)?;
    let fields: Vec<_> = shapes.iter().flat_map(|(_, fields)| fields.iter().map(|field| &field.ty)).collect();
    // What is done with each field that a value has.
    let arms_of = |visited: TokenStream| -> Vec<TokenStream> {
        let arms = shapes.iter().map(|(path, fields)| {
            let bindings: Vec<_> = (0..fields.len()).map(|at| format_ident!("field_{at}")).collect();
            let members = fields.iter().zip(0..).map(|(field, at)| match &field.ident {
                Some(name) => quote!(#name),
                None => {
                    let index = Index::from(at);
                    quote!(#index)
                }
            });
            quote! { #path { #(#members: #bindings),* } => { #( #bound::#visited(#bindings, visit); )* } }
        });
        arms.collect()
    };
    let described = shapes.iter().flat_map(|(path, fields)| {
        let is_struct = matches!(input.data, Data::Struct(_));
        let variant = path.to_string();
        let variant = variant.rsplit(' ').next().filter(|_| !is_struct).map(|name| format!("{name}."));
        fields.iter().enumerate().map(move |(at, field)| {
            let (member, ty) = match &field.ident {
                Some(name) => (quote!(#name), &field.ty),
                None => (Index::from(at).into_token_stream(), &field.ty),
            };
            let name = format!("{}{member}", variant.as_deref().unwrap_or_default());
            let offset = match is_struct {
                true => quote!(::core::option::Option::Some(::core::mem::offset_of!(Self, #member))),
                false => quote!(::core::option::Option::None),
            };
            quote! {
                layout.field::<Self, #ty>(#name, #offset);
                <#ty as ::vgas_objects::Portable>::describe(layout);
            }
        })
    });
    // Where parts of variants are, is not known.
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
    // A type without variants has no values.
    let body_of = |visited| {
        let arms = arms_of(visited);
        if arms.is_empty() { quote!(match *self {}) } else { quote!(match self { #(#arms)* }) }
    };
    let (body, weighed) = (body_of(quote!(links)), body_of(quote!(weigh)));
    Ok(quote! {
        // SAFETY: all fields are portable, which `links` could not be compiled without, and all their links are visited.
        #[automatically_derived]
        unsafe impl #implemented #bound for #name #types #conditions {
            const HAS_LINKS: bool = false #(|| <#fields as #bound>::HAS_LINKS)*;
            #[allow(unused_variables)]
            fn links(&self, visit: &mut dyn ::core::ops::FnMut(&::vgas_objects::Link)) {
                #body
            }
            #[allow(unused_variables)]
            fn weigh(&self, visit: &mut dyn ::core::ops::FnMut(&::vgas_objects::Link, u64)) {
                #weighed
            }
            const HAS_TIES: bool = false #(|| #has_ties)*;
            #[allow(unused_variables)]
            fn ties(ties: &mut ::vgas_objects::Ties) {
                #(#ties)*
            }
            fn glue(glue: &mut ::vgas_objects::Glue) {
                // Of a type that does not implement `Drop`, the trait's constant is meant.
                #[allow(unused_imports)]
                use ::vgas_objects::NoDrop as _;
                if ::vgas_objects::DropOf::<Self>::IS_OWN {
                    glue.own();
                }
                #(glue.part::<#fields>();)*
            }
            fn describe(layout: &mut ::vgas_objects::Layout) {
                if layout.begin::<Self>() {
                    #(#described)*
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
    let shapes = shapes(input)?;
    let fields = shapes.iter().flat_map(|(_, fields)| fields.iter().map(|field| &field.ty));
    Ok(quote! {
        // SAFETY: all fields are shareable, which `check` could not be compiled without.
        #[automatically_derived]
        unsafe impl #implemented #bound for #name #types #conditions {
            fn check() {
                fn is_shareable<Field: #bound>() {}
                #( is_shareable::<#fields>(); )*
            }
        }
    })
}
