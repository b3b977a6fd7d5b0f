//! `tallystick demo`: stories played against a running environment, in plain words, with the proof beside each step.
//!
//! A step says what happens, shows what the API answers, and what the gateway's own book says about it. Every step is
//! also a check: a story that does not go as it must ends with exit code 1.

mod incident;
mod payouts;
mod story;

use std::path::Path;

use clap::ValueEnum;

use super::dev::client::Client;
use super::dev::info::DevInfo;
use super::dev::{Dev, Place};
use super::serve::Signals;
use super::{CliError, Exit, verify};

/// Play a story: what goes wrong between a shop, its gateway and its bank, and what comes of it.
///
/// Uses the `dev` that runs in the data folder, or starts one. Each step shows the API's answer and the proof from the
/// gateway's own book.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which story
    #[arg(value_enum, default_value = "incident")]
    story: Story,
    #[command(flatten)]
    place: Place,
    /// Stop after the story instead of staying up
    #[arg(long)]
    once: bool,
}

/// The stories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Story {
    /// A charge whose reply is lost, the second click on Pay, and payouts that the bank pays and rejects
    Incident,
}

/// Runs it.
///
/// # Errors
/// [`CliError`] says what is missing, or which step did not go as it must.
pub async fn run(args: &Args) -> Result<Exit, CliError> {
    // A `dev` that was killed leaves its file behind; only one that answers to its own key is running.
    if let Ok(info) = DevInfo::read(&args.place.data_dir)
        && Client::new(&info)?.get("/api/v1/payments?limit=1").await.is_ok()
    {
        return play(args.story, &info, &args.place.data_dir).await;
    }
    let mut signals = Signals::new()?;
    let mut dev = Dev::claim(&args.place, false).await?;
    let result = tokio::select! {
        result = own(&mut dev, args) => result,
        _ = signals.next() => Ok(Exit::Done),
    };
    dev.stop(&mut signals).await.and(result)
}

async fn own(dev: &mut Dev, args: &Args) -> Result<Exit, CliError> {
    let info = dev.bring_up().await?;
    let root = dev.root().to_owned();
    let played = tokio::select! {
        played = play(args.story, &info, &root) => played?,
        ended = dev.look_after() => return ended,
    };
    if args.once {
        return Ok(played);
    }
    println!("\nEverything stays up until Ctrl-C.\n{}", dev.summary(&info));
    dev.look_after().await
}

async fn play(story: Story, info: &DevInfo, folder: &Path) -> Result<Exit, CliError> {
    match story {
        Story::Incident => incident(&Client::new(info)?, folder).await,
    }
}

/// Money in that is in doubt, then money out, then the proof of all of it.
async fn incident(client: &Client, folder: &Path) -> Result<Exit, CliError> {
    let mut story = story::Story::new(client);
    let run = hex::encode(rand::random::<[u8; 3]>());
    incident::play(&mut story, &run).await?;
    payouts::play(&mut story, &run).await?;
    story.step("Proof. Every promise is checked, our books against the gateway's:");
    let exit = verify::run(&verify::Args::of_folder(folder)).await?;
    println!("\nOne order, two clicks, one lost reply: one charge. Two payouts: one paid once, one undone.");
    println!("Every move of money has its journal, and nobody guessed.");
    Ok(exit)
}
