//! What programs of a node have where the scenario does not say: by default, and as the node's image wants it.

use std::collections::BTreeMap;

use windtunnel_images::{Config, Image};
use windtunnel_scenario::{Exec, Process, User};

/// What a program finds in its environment if nobody says otherwise.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
];
/// Where names of users and groups are, in an image.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The defaults of a root.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    config: Config,
    user: User,
    /// The home of `user`, where the image knows it.
    home: Option<String>,
    is_image: bool,
}

/// A program with everything filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Program and arguments.
    pub exec: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Absolute.
    pub cwd: String,
    /// Whom it runs as.
    pub user: User,
    /// What it reads on standard input.
    pub stdin: Option<String>,
}

/// Why something cannot be filled in, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What.
    pub problem: String,
    /// What to do about it.
    pub hint: String,
}

impl Defaults {
    /// Those of an image.
    ///
    /// # Errors
    /// When its configuration names a user that it does not have.
    pub fn of_image(image: &Image) -> Result<Self, String> {
        let config = image.about().config.clone();
        let read = |path| {
            let bytes = image
                .read(path)
                .map_err(|error| format!("its {path} cannot be read: {error}"))?;
            Ok::<_, String>(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
        };
        let (user, home) = match &config.user {
            None => find_user("0", &read(USERS)?, ""),
            Some(wanted) => find_user(wanted, &read(USERS)?, &read(GROUPS)?),
        }
        .map_err(|unknown| format!("its USER is `{unknown}`, who is not in its {USERS} or {GROUPS}"))?;
        Ok(Self {
            config,
            user,
            home,
            is_image: true,
        })
    }

    /// A set-up command: as root, in `/`, but with the environment of the image, which has its PATH.
    pub fn setup(&self, command: &[String]) -> Description {
        Description {
            exec: command.to_vec(),
            env: self.environment(None),
            cwd: "/".into(),
            user: User::default(),
            stdin: None,
        }
    }

    /// A process of the scenario.
    ///
    /// # Errors
    /// When it is to run the entrypoint of an image, and there is none.
    pub fn process(&self, process: &Process) -> Result<Description, Missing> {
        let exec = match &process.exec {
            Exec::Command(command) => command.clone(),
            Exec::Image { args } => self.entrypoint(args.as_deref())?,
        };
        // The image's user has the home that the image says; to others, that is a stranger's.
        let home = self.home.as_deref().filter(|_| process.user.is_none());
        let mut env = self.environment(home);
        env.extend(process.env.clone());
        Ok(Description {
            exec,
            env,
            cwd: process
                .cwd
                .as_ref()
                .or(self.config.working_dir.as_ref())
                .map_or("/", |cwd| cwd)
                .to_owned(),
            user: process.user.unwrap_or(self.user),
            stdin: process.stdin.clone(),
        })
    }

    /// What the image adds to the environment of a client's program.
    pub fn image_environment(&self) -> &[(String, String)] {
        &self.config.env
    }

    fn environment(&self, home: Option<&str>) -> BTreeMap<String, String> {
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let mut env: BTreeMap<String, String> = ENVIRONMENT.into_iter().map(own).collect();
        env.extend(home.map(|home| own(("HOME", home))));
        env.extend(self.config.env.iter().cloned());
        env
    }

    fn entrypoint(&self, args: Option<&[String]>) -> Result<Vec<String>, Missing> {
        let args = args.unwrap_or(&self.config.cmd);
        let exec: Vec<String> = self.config.entrypoint.iter().chain(args).cloned().collect();
        if exec.first().is_some_and(|program| !program.is_empty()) {
            return Ok(exec);
        }
        let problem = match self.is_image {
            true => "the image of its node has neither ENTRYPOINT nor CMD",
            false => "the root of its node is a folder, which has no ENTRYPOINT",
        };
        Err(Missing {
            problem: problem.into(),
            hint: "give the process `exec`".into(),
        })
    }
}

/// Whom `USER` of an image means, `NAME`, `UID`, `NAME:GROUP` or `UID:GID`, and the home of that user. As in Docker, a
/// user without an entry has group 0 and no home.
fn find_user(wanted: &str, passwd: &str, group: &str) -> Result<(User, Option<String>), String> {
    let unknown = || wanted.to_owned();
    let (name, group_name) = match wanted.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (wanted, None),
    };
    let entry = lines(passwd, 7).find(|fields| fields[0] == name || fields[2] == name);
    let (uid, primary, home) = match &entry {
        Some(fields) => (
            id(fields[2]),
            id(fields[3]),
            Some(fields[5].to_owned()).filter(|home| !home.is_empty()),
        ),
        None => (id(name), Some(0), None),
    };
    let gid = match group_name {
        None => primary,
        Some(group_name) => lines(group, 4)
            .find(|fields| fields[0] == group_name)
            .map_or_else(|| id(group_name), |fields| id(fields[2])),
    };
    let (uid, gid) = uid.zip(gid).ok_or_else(unknown)?;
    Ok((User { uid, gid }, home))
}

/// The lines of passwd(5) or group(5), by their fields.
fn lines(text: &str, count: usize) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .map(|line| line.split(':').collect())
        .filter(move |fields: &Vec<&str>| fields.len() == count)
}

/// To Linux the highest id means "leave it as it is", which would be root's.
fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&id| id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:44::/srv:/bin/sh\nbroken\n";
    const GROUP: &str = "root:x:0:\nstaff:x:50:web\n";

    #[test]
    fn users_are_found_as_docker_finds_them() {
        let find = |wanted| find_user(wanted, PASSWD, GROUP).map(|(user, home)| (user.uid, user.gid, home));
        let srv = Some("/srv".to_owned());
        assert_eq!(find("web"), Ok((33, 44, srv.clone())));
        assert_eq!(find("33"), Ok((33, 44, srv.clone())));
        assert_eq!(find("web:staff"), Ok((33, 50, srv.clone())));
        assert_eq!(find("web:7"), Ok((33, 7, srv)));
        assert_eq!(find("1000"), Ok((1000, 0, None)));
        assert_eq!(find("1000:1001"), Ok((1000, 1001, None)));
        for unknown in ["nobody", "web:nobody", "4294967295", "broken"] {
            assert_eq!(find(unknown), Err(unknown.to_owned()));
        }
    }

    #[test]
    fn the_scenario_wins_over_the_image_and_the_image_over_the_defaults() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let defaults = Defaults {
            config: Config {
                env: vec![pair("PATH", "/app"), pair("A", "image"), pair("B", "image")],
                working_dir: Some("/srv".into()),
                entrypoint: vec!["server".into(), "--all".into()],
                cmd: vec!["80".into()],
                user: Some("web".into()),
            },
            user: User { uid: 33, gid: 44 },
            home: Some("/srv".into()),
            is_image: true,
        };
        let text = "version: 1\nrun: {stop: 1s}\nnodes: {h: {root: web.tar, processes: [{}, {args: [8080], env: {A: own}, \
                    user: 7, cwd: /tmp}, {exec: other}]}}\n";
        let scenario = windtunnel_scenario::Scenario::parse(text, std::path::Path::new("x.yaml")).unwrap();
        let all: Vec<_> = scenario.nodes[0]
            .processes
            .iter()
            .map(|process| defaults.process(process).unwrap())
            .collect();
        assert_eq!(all[0].exec, ["server", "--all", "80"]);
        assert_eq!(
            (all[0].cwd.as_str(), all[0].user.gid, all[0].env["HOME"].as_str()),
            ("/srv", 44, "/srv")
        );
        assert_eq!(
            (all[0].env["PATH"].as_str(), all[0].env["LANG"].as_str()),
            ("/app", "C.UTF-8")
        );
        assert_eq!(all[1].exec, ["server", "--all", "8080"]);
        assert_eq!((all[1].env["A"].as_str(), all[1].env["B"].as_str()), ("own", "image"));
        assert_eq!(
            (all[1].cwd.as_str(), all[1].user.uid, all[1].env["HOME"].as_str()),
            ("/tmp", 7, "/root")
        );
        assert_eq!(all[2].exec, ["other"]);
        let setup = defaults.setup(&["ip".into()]);
        assert_eq!(
            (setup.user.uid, setup.cwd.as_str(), setup.env["PATH"].as_str()),
            (0, "/", "/app")
        );
        let none = Defaults::default()
            .process(&scenario.nodes[0].processes[0])
            .unwrap_err();
        assert_eq!(
            none.problem,
            "the root of its node is a folder, which has no ENTRYPOINT"
        );
    }
}
