//! Bad input through every door, against the real binary over real sockets: the door says in its own form what is wrong,
//! the next good request is answered, nothing that is stored is lost, and nothing panics.

mod bodies;
mod house;
mod http_doors;
mod over_http;
mod over_websockets;
mod over_wyoming;
