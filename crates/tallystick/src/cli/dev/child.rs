//! Keeping a child process running.
//!
//! [`supervise`] starts a program, starts it again when it ends, and stops it when told to. It says what it does in
//! short lines on stderr; the program's own output goes to its log file. A program that ends before it was ever ready
//! is not started again: what is wrong with it then does not go away by trying.

use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::Instant;

use super::process;
use crate::cli::CliError;

/// How often a program that was just started is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(25);
/// A program that ran this long was well; the next start is at once.
const WELL_AFTER: Duration = Duration::from_secs(3);
/// Pauses before starts that follow quickly on each other. The longest still keeps the promise to be back in 2 s.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
];

/// A program that can be started any number of times.
pub trait Program: Send + 'static {
    /// Short name, for messages and its log file.
    const NAME: &'static str;
    /// Asks it to end in good order.
    const STOP: Signal = Signal::SIGTERM;
    /// Ends it at once.
    const KILL: Signal = Signal::SIGKILL;
    /// How long ending in good order may take.
    const PATIENCE: Duration;

    /// Starts it.
    fn launch(&mut self) -> impl Future<Output = std::io::Result<Child>> + Send;

    /// True when it does its work.
    fn ready(&mut self, pid: u32) -> impl Future<Output = bool> + Send;
}

/// What is known about a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Its process, while it runs.
    pub pid: Option<u32>,
    /// It does its work.
    pub ready: bool,
    /// It ended before it was ever ready; how.
    pub hopeless: Option<Ended>,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// For people.
    pub text: String,
    /// Its exit code, when it had one.
    pub code: Option<i32>,
}

impl Ended {
    fn from_status(status: ExitStatus) -> Self {
        Self { text: status.to_string(), code: status.code() }
    }

    fn from_error(error: &std::io::Error) -> Self {
        Self { text: format!("could not be started: {error}"), code: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Run,
    Stop,
    Kill,
}

/// A program under supervision. Dropping it lets the program run on, unsupervised.
#[derive(Debug)]
pub struct Supervised {
    name: &'static str,
    state: watch::Receiver<State>,
    order: watch::Sender<Order>,
    task: tokio::task::JoinHandle<()>,
}

/// Starts a program and keeps it running.
pub fn supervise<P: Program>(program: P) -> Supervised {
    let (order, orders) = watch::channel(Order::Run);
    let (tell, state) = watch::channel(State::default());
    let keeper = Keeper { program, tell, orders, was_ready: false };
    Supervised { name: P::NAME, state, order, task: tokio::spawn(keeper.keep()) }
}

impl Supervised {
    /// What is known now.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Resolves when something about it changed since the last call.
    pub async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            // The keeper has ended: nothing changes any more.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// [`CliError`] when it ends before, or is not ready in time.
    pub async fn until_ready(&mut self, patience: Duration) -> Result<(), CliError> {
        let name = self.name;
        let wait = self.state.wait_for(|state| state.ready || state.hopeless.is_some());
        let hopeless = match tokio::time::timeout(patience, wait).await {
            Ok(Ok(state)) => state.hopeless.clone(),
            Ok(Err(_)) => Some(Ended { text: "is no longer looked after".into(), code: None }),
            Err(_) => return Err(CliError::Away(format!("the {name} is not ready after {patience:?}"))),
        };
        match hopeless {
            None => Ok(()),
            Some(Ended { text, code: Some(2) }) => {
                Err(CliError::Usage(format!("the {name} refused to start ({text})")))
            }
            Some(Ended { text, .. }) => {
                Err(CliError::Away(format!("the {name} ended before it was ready ({text})")))
            }
        }
    }

    /// Ends the program: in good order, or at once when `hurry` resolves or its time is over.
    pub async fn stop(&mut self, hurry: impl Future<Output = ()>) {
        self.order.send_replace(Order::Stop);
        tokio::select! {
            _ = &mut self.task => return,
            () = hurry => {}
        }
        self.order.send_replace(Order::Kill);
        // An error would be a panic of the keeper, which has been printed by then.
        let _ = (&mut self.task).await;
    }
}

struct Keeper<P> {
    program: P,
    tell: watch::Sender<State>,
    orders: watch::Receiver<Order>,
    was_ready: bool,
}

impl<P: Program> Keeper<P> {
    async fn keep(mut self) {
        let mut quick = 0;
        loop {
            let started = Instant::now();
            let ended = match self.program.launch().await {
                Ok(mut child) => match self.attend(&mut child).await {
                    Some(ended) => ended,
                    None => return self.end(child).await,
                },
                Err(error) => Ended::from_error(&error),
            };
            if !self.was_ready {
                self.tell.send_replace(State { hopeless: Some(ended), ..State::default() });
                return;
            }
            self.tell.send_replace(State::default());
            eprintln!("tallystick dev: the {} ended ({}): starting it again", P::NAME, ended.text);
            quick = if started.elapsed() > WELL_AFTER { 0 } else { quick + 1 };
            let pause = PAUSES[quick.min(PAUSES.len() - 1)];
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = ordered(&mut self.orders, Order::Stop) => return,
            }
        }
    }

    /// Stays with a process until it ends; `None` when it is to be ended.
    async fn attend(&mut self, child: &mut Child) -> Option<Ended> {
        let pid = child.id()?;
        self.tell.send_replace(State { pid: Some(pid), ready: false, hopeless: None });
        let tell = &self.tell;
        let was_ready = &mut self.was_ready;
        let program = &mut self.program;
        let become_ready = async {
            while !program.ready(pid).await {
                tokio::time::sleep(ASK_EVERY).await;
            }
            *was_ready = true;
            tell.send_replace(State { pid: Some(pid), ready: true, hopeless: None });
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = child.wait() => Some(match ended {
                Ok(status) => Ended::from_status(status),
                Err(error) => Ended::from_error(&error),
            }),
            () = become_ready => None,
            () = ordered(&mut self.orders, Order::Stop) => None,
        }
    }

    async fn end(mut self, mut child: Child) {
        let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) else { return };
        for (signal, patience) in [
            (P::STOP, P::PATIENCE),
            (P::KILL, Duration::from_secs(5)),
            (Signal::SIGKILL, Duration::from_secs(5)),
        ] {
            process::signal(pid, signal);
            tokio::select! {
                _ = child.wait() => return,
                () = tokio::time::sleep(patience) => {
                    eprintln!("tallystick dev: the {} did not end on {signal} within {patience:?}", P::NAME);
                }
                () = ordered(&mut self.orders, Order::Kill), if signal == P::STOP => {}
            }
        }
    }
}

/// Resolves when the order is `at_least` or stronger, or nobody gives orders any more.
async fn ordered(orders: &mut watch::Receiver<Order>, at_least: Order) {
    let strong = |order: &Order| match at_least {
        Order::Run => true,
        Order::Stop => *order != Order::Run,
        Order::Kill => *order == Order::Kill,
    };
    if orders.wait_for(strong).await.is_err() {
        // The handle was dropped: the program runs on.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::process::Command;

    use super::*;

    struct Shell(&'static str);

    impl Program for Shell {
        const NAME: &'static str = "shell";
        const PATIENCE: Duration = Duration::from_millis(300);

        async fn launch(&mut self) -> std::io::Result<Child> {
            Command::new("sh").args(["-c", self.0]).process_group(0).spawn()
        }

        async fn ready(&mut self, pid: u32) -> bool {
            // The shell has become `sleep`.
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "sleep")
        }
    }

    fn pid(supervised: &Supervised) -> i32 {
        i32::try_from(supervised.state().pid.unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_killed_program_is_started_again_and_a_stopped_one_is_not() {
        let mut shell = supervise(Shell("exec sleep 60"));
        shell.until_ready(Duration::from_secs(10)).await.unwrap();
        let first = pid(&shell);
        process::signal(first, Signal::SIGKILL);
        let again = |s: &State| s.ready && s.pid.is_some_and(|pid| pid != first.unsigned_abs());
        tokio::time::timeout(Duration::from_secs(2), shell.state.wait_for(again)).await.unwrap().unwrap();
        let second = pid(&shell);
        shell.stop(std::future::pending()).await;
        assert!(!process::alive(first) && !process::alive(second));
    }

    #[tokio::test]
    async fn a_program_that_never_worked_is_given_up_with_its_exit_code() {
        let mut shell = supervise(Shell("exit 2"));
        let error = shell.until_ready(Duration::from_secs(10)).await.unwrap_err();
        assert_eq!(error.exit().code(), 2, "{error}");
        let mut shell = supervise(Shell("exit 3"));
        let error = shell.until_ready(Duration::from_secs(10)).await.unwrap_err();
        assert_eq!(error.exit().code(), 3, "{error}");
        shell.stop(std::future::pending()).await;
    }

    #[tokio::test]
    async fn a_deaf_program_is_killed() {
        let mut shell = supervise(Shell("trap '' TERM; exec sleep 60"));
        shell.until_ready(Duration::from_secs(10)).await.unwrap();
        let process = pid(&shell);
        let began = Instant::now();
        shell.stop(std::future::pending()).await;
        assert!(began.elapsed() >= Shell::PATIENCE && !process::alive(process));
        let mut shell = supervise(Shell("trap '' TERM; exec sleep 60"));
        shell.until_ready(Duration::from_secs(10)).await.unwrap();
        let process = pid(&shell);
        shell.stop(std::future::ready(())).await;
        assert!(!process::alive(process), "killed at once in a hurry");
    }
}
