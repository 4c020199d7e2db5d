//! Random walks through grammars: whatever the masks allow must parse and fit its schema.

mod calls;
mod hostile;
mod json;
mod times;
mod validator;
mod walk;
