//! `verify` and `wait`: each rule sees the violation that was planted for it, by name, and no other rule does.
//!
//! A fixture holds real data of every kind. For each planting the database is copied, the violation is written as
//! superuser with the guards switched off (or put into the gateway's book), and the whole report is compared.

mod book;
mod command;
mod fixture;
mod flight;
mod idle;
mod ledger;
mod payments;
mod payout_book;
mod payout_fixture;
mod payouts;
mod plant;
