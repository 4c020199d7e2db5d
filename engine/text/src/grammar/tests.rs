//! Random walks through grammars: every reply that the masks allow must parse and fit its schema.

mod calls;
mod hostile;
mod json;
mod times;
mod validator;
mod walk;
