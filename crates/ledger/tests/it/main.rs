//! The ledger against a real PostgreSQL. `DATABASE_URL` names a superuser; every test gets a database of its own.

#[cfg(test)]
mod balances;
#[cfg(test)]
mod guards;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod posting;
#[cfg(test)]
mod statuses;
#[cfg(test)]
mod support;
#[cfg(test)]
mod verify;
#[cfg(test)]
mod views;
