//! The sandbox from outside: each test runs a program of its own and speaks HTTP to it.

mod common;
mod control;
mod durability;
mod faults;
mod keys;
mod lifecycle;
mod values;
mod webhooks;
