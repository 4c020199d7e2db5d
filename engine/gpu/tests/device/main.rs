//! Every kernel on the device of tests against its definition, and the path to the driver on a stand-in for it.

mod activation;
mod attention;
mod check;
mod convolution;
mod delta;
mod norm;
mod product;
mod routing;
mod snapshot;
mod stand_in;
