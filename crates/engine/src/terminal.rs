//! Terminals and pipes between process 1 of a node and a program it starts for a client.

use windtunnel_control::{Open, Refusal, Stream, WindowSize};
use windtunnel_kernel::{Argument, Completed, Descriptor, Request, SpawnSpec};

use std::collections::BTreeMap;
use std::ffi::CString;

use crate::configure::{Calls, errno_text};
use crate::error::EngineError;

/// `ioctl`s of pseudo terminals that libc has no constants for (include/uapi/asm-generic/ioctls.h).
const TIOCGPTPEER: u64 = 0x5441;
const TIOCSPTLCK: u64 = 0x4004_5431;
/// Size of the kernel's `struct termios`, bytes; the input flags come first.
const TERMIOS_BYTES: usize = 36;
/// Environment of clients' programs, besides TERM and what depends on the user.
const ENVIRONMENT: [(&str, &str); 2] = [("LANG", "C.UTF-8"), ("PATH", USUAL_PATH)];
/// Where programs are looked for if nobody says.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The users of a node, and what is read of them at most, bytes.
const USERS: &str = "/etc/passwd";
const USERS_BYTES: usize = 1 << 20;
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];

/// Near ends, which are descriptors of process 1. A terminal is one of them, in both places.
#[derive(Debug)]
pub struct Ends {
    /// What the program reads; none: closed.
    pub input: Option<i32>,
    /// What it writes.
    pub outputs: Vec<(Stream, i32)>,
    /// Whether it is a terminal.
    pub terminal: bool,
}

/// Far ends: descriptors of process 1 that become a program's 0, 1 and 2.
pub type FarEnds = [i32; 3];

/// A program that is there.
#[derive(Debug)]
pub struct Found {
    /// Absolute path.
    pub path: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Whether it is the node's shell rather than a named program.
    pub shell: bool,
    /// Whom it runs as.
    pub user: NodeUser,
}

/// A user as a node knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Name; the user id where the node has none.
    pub name: String,
    /// Home folder.
    pub home: String,
}

impl NodeUser {
    fn root() -> Self {
        Self {
            uid: 0,
            gid: 0,
            name: "root".into(),
            home: "/root".into(),
        }
    }

    /// A line of passwd(5); none: it is not one.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, _] = fields[..] else {
            return None;
        };
        Some(Self {
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
            name: name.into(),
            home: home.into(),
        })
    }

    /// The user that `wanted` means, given the node's users.
    fn find(wanted: &str, passwd: &str) -> Option<Self> {
        let mut known = passwd.lines().filter_map(Self::parse);
        let (uid, gid) = match wanted.split_once(':') {
            Some((uid, gid)) => (uid.parse::<u32>().ok()?, Some(gid.parse::<u32>().ok()?)),
            None => match wanted.parse() {
                Ok(uid) => (uid, None),
                Err(_) => return known.find(|user| user.name == wanted),
            },
        };
        let user = known.find(|user| user.uid == uid).unwrap_or_else(|| Self {
            uid,
            gid: uid,
            name: uid.to_string(),
            home: "/".into(),
        });
        let gid = gid.unwrap_or(user.gid);
        // To Linux the highest id means "leave it as it is", which would be root's.
        (user.uid != u32::MAX && gid != u32::MAX).then_some(Self { gid, ..user })
    }
}

/// The reason in the shape clients get it.
pub fn refusal(message: impl Into<String>, exit_code: i32) -> Refusal {
    Refusal {
        message: message.into(),
        hint: None,
        exit_code,
    }
}

fn text(text: &str) -> Argument {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    Argument::Bytes(bytes)
}

fn fd(fd: i32) -> Argument {
    Argument::Value(fd as u64)
}

/// Looks for the program where a shell would, in the node as it is now.
///
/// # Errors
/// When the node's kernel crashes; inside, that it is not there.
pub fn find(calls: &mut dyn Calls, open: &Open) -> Result<Result<Found, Refusal>, EngineError> {
    let user = match find_user(calls, open.user.as_deref())? {
        Ok(user) => user,
        Err(refused) => return Ok(Err(refused)),
    };
    if let Some(cwd) = &open.cwd {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let (folder, _) = calls.call(libc::SYS_open, vec![text(cwd), Argument::Value(flags as u64)])?;
        if folder < 0 {
            let what = format!("the working directory `{cwd}`: {}", errno_text(-folder));
            return Ok(Err(refusal(what, 2)));
        }
        close_all(calls, &[folder as i32])?;
    }
    let environment = environment(open, &user);
    let (candidates, argv, shell): (Vec<String>, _, _) = match open.argv.first() {
        None => (SHELLS.map(str::to_owned).to_vec(), Vec::new(), true),
        Some(program) if program.contains('/') => {
            // From its working directory, as a shell there would find it.
            let folder = open.cwd.as_deref().filter(|_| !program.starts_with('/'));
            let path = folder.map_or_else(|| program.clone(), |folder| format!("{folder}/{program}"));
            (vec![path], open.argv.clone(), false)
        }
        Some(program) => {
            let folders = environment.get("PATH").copied().unwrap_or(USUAL_PATH).split(':');
            let candidates = folders.map(|folder| format!("{folder}/{program}")).collect();
            (candidates, open.argv.clone(), false)
        }
    };
    let mut refused = libc::ENOENT;
    for path in candidates {
        let args = vec![text(&path), Argument::Value(libc::X_OK as u64)];
        let (result, _) = calls.call(libc::SYS_access, args)?;
        if result >= 0 {
            let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
            let argv = if shell { vec![name] } else { argv };
            return Ok(Ok(Found {
                path,
                argv,
                shell,
                user,
            }));
        }
        if -result != i64::from(libc::ENOENT) {
            refused = -result as i32;
        }
    }
    let exit_code = if refused == libc::ENOENT { 127 } else { 126 };
    let what = if shell {
        "the node has no bash and no sh".to_owned()
    } else if refused == libc::ENOENT && !argv[0].contains('/') {
        format!("`{}` is in no folder of PATH in the node", argv[0])
    } else {
        format!("`{}`: {}", argv[0], errno_text(refused.into()))
    };
    Ok(Err(refusal(what, exit_code)))
}

/// Looks for a user in the node as it is now.
fn find_user(calls: &mut dyn Calls, wanted: Option<&str>) -> Result<Result<NodeUser, Refusal>, EngineError> {
    let Some(wanted) = wanted else {
        return Ok(Ok(NodeUser::root()));
    };
    let flags = Argument::Value((libc::O_RDONLY | libc::O_CLOEXEC) as u64);
    let (file, _) = calls.call(libc::SYS_open, vec![text(USERS), flags])?;
    let mut passwd = Vec::new();
    if file >= 0 {
        let room = vec![
            fd(file as i32),
            Argument::Bytes(vec![0; USERS_BYTES]),
            Argument::Value(USERS_BYTES as u64),
        ];
        let (length, mut args) = calls.call(libc::SYS_read, room)?;
        if let (Ok(length), Argument::Bytes(bytes)) = (usize::try_from(length), args.swap_remove(1)) {
            passwd = bytes;
            passwd.truncate(length);
        }
        close_all(calls, &[file as i32])?;
    }
    let found = NodeUser::find(wanted, &String::from_utf8_lossy(&passwd));
    Ok(found.ok_or_else(|| Refusal {
        message: format!("there is no user `{wanted}` in the node's {USERS}"),
        hint: Some("a user id, or user and group id as in 1000:1000, need not be there".into()),
        exit_code: 2,
    }))
}

fn environment<'a>(open: &'a Open, user: &'a NodeUser) -> BTreeMap<&'a str, &'a str> {
    let given = open.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    if open.env_only {
        return given.collect();
    }
    let own = [("HOME", &*user.home), ("LOGNAME", &*user.name), ("USER", &*user.name)];
    ENVIRONMENT.into_iter().chain(own).chain(given).collect()
}

/// The request that starts the program on the far ends.
pub fn spawn_spec(key: u64, open: &Open, found: &Found, far: FarEnds) -> SpawnSpec {
    // Of the request it was checked (`Open::problem`); a home folder comes from the node, and ends at a NUL as for its login.
    let c_string = |text: &str| CString::new(text.split('\0').next().unwrap_or_default()).expect("it has no NUL");
    let mut environment = environment(open, &found.user);
    if found.shell {
        environment.insert("SHELL", &found.path);
    }
    SpawnSpec {
        key,
        path: c_string(&found.path),
        argv: found.argv.iter().map(|word| c_string(word)).collect(),
        envp: environment
            .iter()
            .map(|(name, value)| c_string(&format!("{name}={value}")))
            .collect(),
        cwd: c_string(match &open.cwd {
            Some(cwd) => cwd,
            None if found.shell => &found.user.home,
            None => "/",
        }),
        descriptors: far.map(Descriptor::OfInit),
        tty: open.terminal.is_some(),
        uid: found.user.uid,
        gid: found.user.gid,
    }
}

/// Makes a user the owner of far ends, who may then open them again by their names in /dev.
///
/// # Errors
/// When the node's kernel crashes.
pub fn give(calls: &mut dyn Calls, far: FarEnds, user: &NodeUser) -> Result<(), EngineError> {
    // The group stays: that of terminals may write to them.
    let keep = Argument::Value(u64::MAX);
    for end in far.into_iter().filter(|_| user.uid != 0) {
        let args = vec![fd(end), Argument::Value(user.uid.into()), keep.clone()];
        calls.call(libc::SYS_fchown, args)?;
    }
    Ok(())
}

/// A new terminal of that size, or three pipes: near and far ends.
///
/// # Errors
/// When the node's kernel crashes; inside, that it cannot be had.
pub fn open(calls: &mut dyn Calls, size: Option<WindowSize>) -> Result<Result<(Ends, FarEnds), Refusal>, EngineError> {
    let made = match size {
        Some(size) => open_terminal(calls, size)?,
        None => open_pipes(calls)?,
    };
    Ok(made.map_err(|(what, errno)| refusal(format!("cannot make {what}: {}", errno_text(errno)), 2)))
}

type Made = Result<(Ends, FarEnds), (&'static str, i64)>;

fn open_terminal(calls: &mut dyn Calls, size: WindowSize) -> Result<Made, EngineError> {
    let flags = (libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) as u64;
    let args = vec![text("/dev/ptmx"), Argument::Value(flags | libc::O_NONBLOCK as u64)];
    let (master, _) = calls.call(libc::SYS_open, args)?;
    if master < 0 {
        return Ok(Err(("a terminal", -master)));
    }
    let master = master as i32;
    let unlocked = Argument::Bytes(0i32.to_ne_bytes().to_vec());
    calls.call(libc::SYS_ioctl, vec![fd(master), Argument::Value(TIOCSPTLCK), unlocked])?;
    let args = vec![fd(master), Argument::Value(TIOCGPTPEER), Argument::Value(flags)];
    let (peer, _) = calls.call(libc::SYS_ioctl, args)?;
    if peer < 0 {
        close_all(calls, &[master])?;
        return Ok(Err(("a terminal", -peer)));
    }
    resize(calls, master, size)?;
    edit_utf8(calls, master)?;
    let ends = Ends {
        input: Some(master),
        outputs: vec![(Stream::Output, master)],
        terminal: true,
    };
    Ok(Ok((ends, [peer as i32; 3])))
}

/// Has the terminal erase whole characters, as terminals in use everywhere do; a new one takes bytes for characters.
fn edit_utf8(calls: &mut dyn Calls, master: i32) -> Result<(), EngineError> {
    let room = Argument::Bytes(vec![0; TERMIOS_BYTES]);
    let (result, mut args) = calls.call(libc::SYS_ioctl, vec![fd(master), Argument::Value(libc::TCGETS), room])?;
    let Some(Argument::Bytes(mut termios)) = args.pop().filter(|_| result == 0) else {
        return Ok(());
    };
    let (flags, _) = termios.split_first_chunk_mut::<4>().expect("it has a size");
    *flags = (u32::from_ne_bytes(*flags) | libc::IUTF8).to_ne_bytes();
    let args = vec![fd(master), Argument::Value(libc::TCSETS), Argument::Bytes(termios)];
    calls.call(libc::SYS_ioctl, args)?;
    Ok(())
}

fn open_pipes(calls: &mut dyn Calls) -> Result<Made, EngineError> {
    let mut pipes = Vec::new();
    for _ in 0..3 {
        let args = vec![Argument::Bytes(vec![0; 8]), Argument::Value(libc::O_CLOEXEC as u64)];
        let (result, args) = calls.call(libc::SYS_pipe2, args)?;
        let Argument::Bytes(fds) = &args[0] else {
            return Err(EngineError::Internal("a buffer did not come back".into()));
        };
        if result < 0 {
            let made: Vec<i32> = pipes.iter().flat_map(|&(read, write)| [read, write]).collect();
            close_all(calls, &made)?;
            return Ok(Err(("pipes", -result)));
        }
        let number = |at: usize| i32::from_ne_bytes(fds[at..at + 4].try_into().expect("four bytes"));
        pipes.push((number(0), number(4)));
    }
    let [(stdin_far, stdin), (stdout, stdout_far), (stderr, stderr_far)] = pipes[..] else {
        return Err(EngineError::Internal("three pipes were made".into()));
    };
    for near in [stdin, stdout, stderr] {
        let args = [near as u64, libc::F_SETFL as u64, libc::O_NONBLOCK as u64];
        calls.call(libc::SYS_fcntl, args.map(Argument::Value).to_vec())?;
    }
    let ends = Ends {
        input: Some(stdin),
        outputs: vec![(Stream::Output, stdout), (Stream::Error, stderr)],
        terminal: false,
    };
    Ok(Ok((ends, [stdin_far, stdout_far, stderr_far])))
}

/// Gives a terminal another size: its programs get SIGWINCH.
///
/// # Errors
/// When the node's kernel crashes.
pub fn resize(calls: &mut dyn Calls, master: i32, size: WindowSize) -> Result<(), EngineError> {
    let words = [size.rows, size.columns, 0, 0];
    let winsize = Argument::Bytes(words.iter().flat_map(|word| word.to_ne_bytes()).collect());
    calls.call(
        libc::SYS_ioctl,
        vec![fd(master), Argument::Value(libc::TIOCSWINSZ), winsize],
    )?;
    Ok(())
}

/// Closes descriptors, each once.
///
/// # Errors
/// When the node's kernel crashes.
pub fn close_all(calls: &mut dyn Calls, fds: &[i32]) -> Result<(), EngineError> {
    let mut fds = fds.to_vec();
    fds.sort_unstable();
    fds.dedup();
    for open in fds {
        calls.call(libc::SYS_close, vec![fd(open)])?;
    }
    Ok(())
}

/// Closes near ends.
///
/// # Errors
/// When the node's kernel crashes.
pub fn close_ends(calls: &mut dyn Calls, ends: &Ends) -> Result<(), EngineError> {
    let outputs = ends.outputs.iter().map(|&(_, fd)| fd);
    let fds: Vec<i32> = ends.input.into_iter().chain(outputs).collect();
    close_all(calls, &fds)
}

/// SIGHUP to a program and those it has in its process group.
///
/// # Errors
/// When the node's kernel crashes.
pub fn hang_up_group(calls: &mut dyn Calls, group: u32) -> Result<(), EngineError> {
    let group = -i64::from(group);
    let args = vec![Argument::Value(group as u64), Argument::Value(libc::SIGHUP as u64)];
    calls.call(libc::SYS_kill, args)?;
    Ok(())
}

/// A read that does not wait.
pub fn read(from: i32, bytes: usize) -> Request {
    Request::Syscall {
        nr: libc::SYS_read as u64,
        args: vec![fd(from), Argument::Bytes(vec![0; bytes]), Argument::Value(bytes as u64)],
    }
}

/// A write that does not wait.
pub fn write(to: i32, bytes: Vec<u8>) -> Request {
    let length = bytes.len() as u64;
    Request::Syscall {
        nr: libc::SYS_write as u64,
        args: vec![fd(to), Argument::Bytes(bytes), Argument::Value(length)],
    }
}

/// What a finished [`read`] brought; empty: nothing.
pub fn bytes_read(done: Completed) -> Vec<u8> {
    let length = usize::try_from(done.result).unwrap_or(0);
    match done.request {
        Request::Syscall { mut args, .. } if length > 0 => match args.swap_remove(1) {
            Argument::Bytes(mut bytes) => {
                bytes.truncate(length);
                bytes
            }
            Argument::Value(_) => Vec::new(),
        },
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbroken\npostgres:x:105:111:,,,:/var/lib/postgresql:/bin/bash\n";
        let find = |wanted| NodeUser::find(wanted, passwd).map(|user| (user.uid, user.gid, user.name, user.home));
        let user = |uid, gid, name: &str, home: &str| Some((uid, gid, name.to_owned(), home.to_owned()));
        assert_eq!(find("root"), user(0, 0, "root", "/root"));
        assert_eq!(find("postgres"), user(105, 111, "postgres", "/var/lib/postgresql"));
        assert_eq!(find("105"), find("postgres"));
        assert_eq!(find("105:7"), user(105, 7, "postgres", "/var/lib/postgresql"));
        assert_eq!(find("4000"), user(4000, 4000, "4000", "/"));
        for nobody in ["", "broken", "postgre", "1:x", "-1", ":", "4294967295", "0:4294967295"] {
            assert_eq!(find(nobody), None, "{nobody}");
        }
    }
}
