//! The words of the sandbox: operations, what they did to money (effects), what was asked (requests), what was told
//! (events). Amounts are minor units, moments microseconds.

use serde::{Deserialize, Serialize};

use crate::clock::Micros;

/// An enum whose variants have one word each, in JSON and in text.
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        $vis enum $name { $($(#[$vmeta])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// The word for it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// What a word means, if anything.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}
pub(crate) use words;

/// Whether a member is left out of the journal file.
const fn is_no(value: &bool) -> bool {
    !*value
}

words! {
    /// A gateway account, as it stands in the path of the gateway API and of our webhooks.
    pub enum Gateway {
        /// Keeps a key's result for the key retention and replays it.
        Sandbox = "sandbox",
        /// Keeps a key only when it answered 2xx; otherwise the same key executes again.
        Reexecutes = "sandbox-reexecutes",
    }
}

impl Gateway {
    /// Both accounts.
    pub const ALL: [Self; 2] = [Self::Sandbox, Self::Reexecutes];
}

words! {
    /// What a submit asks for.
    pub enum Kind {
        /// Take money from a payer, or only hold it.
        Charge = "charge",
        /// Take all or a part of what is held.
        Capture = "capture",
        /// Let go of what is held and not captured.
        Void = "void",
        /// Give captured money back.
        Refund = "refund",
        /// Send money to a destination.
        Payout = "payout",
    }
}

words! {
    /// An operation as requests name it: a submit's kind, or a question.
    pub enum Asked {
        /// Submit of a charge.
        Charge = "charge",
        /// Submit of a capture.
        Capture = "capture",
        /// Submit of a void.
        Void = "void",
        /// Submit of a refund.
        Refund = "refund",
        /// Submit of a payout.
        Payout = "payout",
        /// Question for the status of a key.
        Status = "status",
    }
}

impl From<Kind> for Asked {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Charge => Self::Charge,
            Kind::Capture => Self::Capture,
            Kind::Void => Self::Void,
            Kind::Refund => Self::Refund,
            Kind::Payout => Self::Payout,
        }
    }
}

words! {
    /// Where an operation stands.
    pub enum Status {
        /// Money is held.
        Authorized = "authorized",
        /// Money is taken.
        Captured = "captured",
        /// The hold was let go.
        Voided = "voided",
        /// Money was given back.
        Refunded = "refunded",
        /// The payout was sent.
        Paid = "paid",
        /// Acknowledged by the card gateway, not decided.
        Pending = "pending",
        /// Acknowledged by the bank, not decided.
        Accepted = "accepted",
        /// Refused for good by the card gateway.
        Declined = "declined",
        /// Refused for good by the bank.
        Rejected = "rejected",
        /// The payout was sent and came back.
        Returned = "returned",
        /// The hold ran out.
        Expired = "expired",
        /// The capture was taken back.
        CaptureFailed = "capture_failed",
        /// The refund was taken back.
        RefundFailed = "refund_failed",
    }
}

impl Status {
    /// Acknowledged and not decided.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Accepted)
    }
}

words! {
    /// A kind of effect on money.
    pub enum EffectKind {
        /// Taken from the payer at once.
        Charge = "charge",
        /// Held.
        Authorize = "authorize",
        /// Taken from what was held.
        Capture = "capture",
        /// Let go.
        Void = "void",
        /// Given back.
        Refund = "refund",
        /// Sent.
        Payout = "payout",
        /// Came back.
        PayoutReturn = "payout_return",
    }
}

words! {
    /// Whether an effect still stands.
    pub enum EffectState {
        /// It stands.
        Done = "done",
        /// It was taken back: a hold let go or run out, a capture or refund that failed afterwards.
        Undone = "undone",
    }
}

words! {
    /// What a webhook tells.
    pub enum Fact {
        /// Money is held.
        Authorized = "authorized",
        /// Money is taken.
        Captured = "captured",
        /// Refused for good.
        Declined = "declined",
        /// The hold was let go.
        Voided = "voided",
        /// The hold ran out.
        Expired = "expired",
        /// A capture was taken back.
        CaptureFailed = "capture_failed",
        /// Money was given back.
        Refund = "refund",
        /// A refund was taken back.
        RefundFailed = "refund_failed",
        /// The payer contests.
        DisputeOpened = "dispute_opened",
        /// The contest ended for us.
        DisputeWon = "dispute_won",
        /// The contest ended for the payer.
        DisputeLost = "dispute_lost",
        /// A payout was sent, or a charge's money was settled to us.
        Settled = "settled",
        /// The bank refused a payout.
        Rejected = "rejected",
        /// A payout came back.
        Returned = "returned",
    }
}

/// The parameters of a submit; two submits under one key must be equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submit {
    /// What is asked for.
    pub kind: Kind,
    /// Amount in minor units; absent for a void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount_minor: Option<i64>,
    /// ISO 4217 code; absent for a void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Payment method of a charge, destination of a payout; empty otherwise.
    pub instrument: String,
    /// Of a charge: take the money at once.
    #[serde(default, skip_serializing_if = "is_no")]
    pub capture: bool,
    /// Of captures, voids and refunds: the key of the charge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge_key: Option<String>,
    /// Of a capture: nothing more will be captured.
    #[serde(default, rename = "final", skip_serializing_if = "is_no")]
    pub last: bool,
}

/// Why an operation was refused for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decline {
    /// A short code, such as `declined` or `capture_exceeds_authorized`.
    pub code: String,
    /// The same in words.
    pub message: String,
}

impl Decline {
    /// A decline with its code and words.
    #[must_use]
    pub fn new(code: &str, message: &str) -> Self {
        Self { code: code.to_owned(), message: message.to_owned() }
    }
}

words! {
    /// What an operation does by itself later.
    pub enum Act {
        /// Its effect happens.
        Execute = "execute",
        /// It is refused.
        Decline = "decline",
        /// A payout comes back.
        Return = "return",
    }
}

/// A step that an operation takes by itself at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When.
    pub due: Micros,
    /// What.
    pub act: Act,
    /// What the bank does after this one, so many microseconds later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<(Act, Micros)>,
}

/// The part of an operation that an answer shows; kept with the HTTP status as the key's result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// HTTP status of the answer.
    pub code: u16,
    /// Where the operation stood.
    pub status: Status,
    /// Its amount in minor units.
    pub amount_minor: i64,
    /// Captured of its charge, in minor units.
    pub captured_minor: i64,
    /// Refunded of its charge, in minor units.
    pub refunded_minor: i64,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decline: Option<Decline>,
}

/// What a key stands for: an operation and all that became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Account it was submitted to.
    pub gateway: Gateway,
    /// The gateway key.
    pub key: String,
    /// Its parameters.
    pub submit: Submit,
    /// The gateway's own name for it.
    pub reference: String,
    /// Where it stands.
    pub status: Status,
    /// Its amount in minor units; with the fault `wrong_amount` not the one asked for.
    pub amount_minor: i64,
    /// Its currency; a void has its charge's.
    pub currency: String,
    /// Captured so far, of the charge it belongs to, in minor units.
    pub captured_minor: i64,
    /// Refunded so far, of the charge it belongs to, in minor units.
    pub refunded_minor: i64,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decline: Option<Decline>,
    /// When the key was first executed; key retention counts from here.
    pub first_at: Micros,
    /// Until then the status route does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_until: Option<Micros>,
    /// No webhook tells of it.
    #[serde(default, skip_serializing_if = "is_no")]
    pub quiet: bool,
    /// Each fact is told three times under two event ids.
    #[serde(default, skip_serializing_if = "is_no")]
    pub dup: bool,
    /// Its latest effect, by `seq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<u64>,
    /// What it does by itself later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Step>,
    /// The result that the key replays; absent where the account does not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Outcome>,
    /// The gateway's fee in minor units, once a `settled` fact told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fee_minor: Option<i64>,
    /// The dispute's own reference, once one was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispute: Option<String>,
}

impl Operation {
    /// What an answer shows now, with the given HTTP status.
    #[must_use]
    pub fn outcome(&self, code: u16) -> Outcome {
        Outcome {
            code,
            status: self.status,
            amount_minor: self.amount_minor,
            captured_minor: self.captured_minor,
            refunded_minor: self.refunded_minor,
            decline: self.decline.clone(),
        }
    }

    /// The body of an answer that shows `outcome`.
    #[must_use]
    pub fn body<'a>(&'a self, outcome: &'a Outcome) -> AnswerBody<'a> {
        AnswerBody {
            key: &self.key,
            operation: self.submit.kind,
            reference: &self.reference,
            status: outcome.status,
            amount_minor: outcome.amount_minor,
            currency: &self.currency,
            captured_minor: outcome.captured_minor,
            refunded_minor: outcome.refunded_minor,
            decline: outcome.decline.as_ref(),
        }
    }
}

/// Body of the answer to a submit or a status question.
#[derive(Debug, Serialize)]
pub struct AnswerBody<'a> {
    key: &'a str,
    operation: Kind,
    reference: &'a str,
    status: Status,
    amount_minor: i64,
    currency: &'a str,
    captured_minor: i64,
    refunded_minor: i64,
    decline: Option<&'a Decline>,
}

/// One movement of money.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Effect {
    /// Position in the book, from 1, without gaps.
    pub seq: u64,
    /// When.
    pub at: Micros,
    /// Account.
    pub gateway: Gateway,
    /// What.
    pub kind: EffectKind,
    /// Key of the operation that caused it; for a refund made at the gateway itself the charge's key.
    pub key: String,
    /// The gateway's name for it.
    pub reference: String,
    /// Amount in minor units, positive.
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: String,
    /// Whether it still stands.
    pub state: EffectState,
    /// When it was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_at: Option<Micros>,
}

/// One request to the gateway API.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Order of arrival, from 1.
    pub seq: u64,
    /// When it arrived.
    pub at: Micros,
    /// Account.
    pub gateway: Gateway,
    /// What was asked.
    pub operation: Asked,
    /// The gateway key, empty when there was none.
    pub key: String,
    /// HTTP status of the answer; absent when none was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<u16>,
}

/// One attempt to deliver an event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delivery {
    /// When it ended.
    pub at: Micros,
    /// HTTP status of the receiver; absent when there was no answer.
    pub status: Option<u16>,
}

/// A delivery of an event that is still to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// Number of this send among its event's.
    pub no: u32,
    /// When.
    pub due: Micros,
    /// Attempts that failed so far.
    pub failed: u32,
}

/// Something the gateway tells, once or several times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Order of making, from 1.
    pub seq: u64,
    /// Event id, `evt_…`.
    pub id: String,
    /// Account, and with it the address.
    pub gateway: Gateway,
    /// What it tells.
    pub fact: Fact,
    /// Key of the operation.
    pub key: String,
    /// The gateway's name for what it tells of.
    pub reference: String,
    /// The exact bytes that are signed and sent.
    pub body: String,
    /// Seconds since 1970 of the latest signature, by the machine's clock.
    pub signed_at: i64,
    /// Attempts so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliveries: Vec<Delivery>,
    /// Deliveries to come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sends: Vec<Send>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_same_in_json_and_text() {
        assert_eq!(serde_json::to_string(&Gateway::Reexecutes).unwrap(), "\"sandbox-reexecutes\"");
        assert_eq!(Fact::from_word("dispute_opened"), Some(Fact::DisputeOpened));
        assert_eq!(EffectKind::PayoutReturn.as_str(), "payout_return");
        assert_eq!(Kind::from_word("moon"), None);
        assert_eq!(Asked::from(Kind::Void).as_str(), Kind::Void.as_str());
    }
}
