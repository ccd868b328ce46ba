package shell

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/cache"
)

// account is the user and group of a command.
type account struct {
	name, home string
	uid, gid   uint32
	groups     []uint32
	// nameless is set for a number without a user: its group is unknown.
	nameless bool
	// change is set if the account differs from the node's.
	change bool
}

func (a account) credential() *syscall.Credential {
	if !a.change {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
}

const (
	// accountLife is how long an account is cached: looking it up takes as long as starting
	// a process.
	accountLife = 10 * time.Second
	// accountsMax bounds the cached accounts.
	accountsMax = 1000
)

// accounts decides the account of commands.
type accounts struct {
	root        bool // the node runs as root
	self        account
	defaultUser string
	configured  []string // Config.AllowUsers
	allowed     []string // the same and defaultUser; "*" is everybody but root
	groups      []string // further groups that any user may have
	file        string   // the settings file, for messages; "" without one

	known cache.Map[[2]string, knownAccount]
}

type knownAccount struct {
	account
	until time.Time
}

func newAccounts(config Config) (*accounts, error) {
	a := &accounts{
		root: os.Geteuid() == 0, defaultUser: config.DefaultUser,
		configured: config.AllowUsers, allowed: slices.Clone(config.AllowUsers), groups: slices.Clone(config.AllowGroups), file: config.File,
	}
	a.self = self()
	if a.defaultUser != "" {
		// Users that jobs name may exist on some nodes only.
		if err := checkDefaultUser(a.defaultUser, a.root, a.self); err != nil {
			return nil, fmt.Errorf("default user: %w", err)
		}
		a.allowed = append(a.allowed, a.defaultUser)
	}
	return a, nil
}

// self returns the account of this process.
func self() account {
	a := account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	a.name, a.home = strconv.Itoa(os.Geteuid()), "/"
	if u, err := user.LookupId(a.name); err == nil {
		a.name, a.home = u.Username, u.HomeDir
	}
	return a
}

// CheckDefaultUser returns why [New] would refuse a default user.
func CheckDefaultUser(name string) error {
	return checkDefaultUser(name, os.Geteuid() == 0, self())
}

func checkDefaultUser(name string, root bool, self account) error {
	u, err := lookupUser(name)
	if err != nil {
		return err
	}
	if !root && u.uid != self.uid {
		return fmt.Errorf("this server runs as user %s and cannot run commands as %s: only root can switch users", self.name, name)
	}
	return nil
}

// allows reports whether commands may run as a user. The error is an errLookup.
func (a *accounts) allows(uid uint32) (bool, error) {
	return anyOf(a.allowed, func(name string) (bool, error) {
		if name == "*" {
			return uid != 0, nil
		}
		u, err := lookupUser(name)
		return err == nil && u.uid == uid, err
	})
}

// anyOf reports whether one of some names is allowed. A name unknown to this machine does not allow
// it; a failed look-up counts only if no other name allows it.
func anyOf(names []string, allows func(name string) (bool, error)) (bool, error) {
	var failed error
	for _, name := range names {
		ok, err := allows(name)
		if ok {
			return true, nil
		}
		var lookup errLookup
		if errors.As(err, &lookup) {
			failed = err
		}
	}
	return false, failed
}

// allowsGroup reports whether commands of a user may have a group: one of the user's own, or a
// configured one. Others would give the user new rights, to files of the group shadow or disk, or
// the socket of Docker. The error is an errLookup.
func (a *accounts) allowsGroup(u account, gid uint32) (bool, error) {
	if u.uid == 0 || !u.nameless && gid == u.gid || slices.Contains(u.groups, gid) {
		return true, nil
	}
	return anyOf(a.groups, func(name string) (bool, error) {
		allowed, err := lookupGroup(name)
		return err == nil && allowed == gid, err
	})
}

// of returns the account for a job's user and group.
func (a *accounts) of(userName, groupName string) (account, error) {
	if userName == "" {
		if a.root && a.defaultUser == "" {
			return account{}, errors.New("the job has no run.user and the server, which runs as root, has no user for such jobs: name one in run.user, or start the server with --run-as")
		}
		userName = a.defaultUser
		if !a.root {
			userName = a.self.name
		}
	}
	key := [2]string{userName, groupName}
	now := time.Now()
	k, ok := a.known.Get(key)
	if ok && now.Before(k.until) {
		return k.account, nil
	}
	found, err := a.find(userName, groupName)
	if err != nil {
		return account{}, err
	}
	a.known.Put(key, knownAccount{found, now.Add(accountLife)}, accountsMax)
	return found, nil
}

func (a *accounts) find(userName, groupName string) (account, error) {
	found := a.self
	if userName != a.self.name || a.root {
		var err error
		if found, err = lookupUser(userName); err != nil {
			return account{}, err
		}
	}
	if groupName != "" {
		gid, err := lookupGroup(groupName)
		if err != nil {
			return account{}, err
		}
		if a.root {
			switch ok, err := a.allowsGroup(found, gid); {
			case err != nil:
				return account{}, err
			case !ok:
				return account{}, fmt.Errorf("user %s is not in the group %s, and %s does not list it", found.name, groupName, a.setting("shell.allow_groups"))
			}
		}
		found.gid = gid
	} else if found.nameless {
		return account{}, fmt.Errorf("user %s has no name on this machine and so no group: name one in run.group", userName)
	}
	found.change = found.uid != a.self.uid || found.gid != a.self.gid
	if !a.root {
		if found.change {
			return account{}, fmt.Errorf("the server runs as user %s and cannot run commands as another user or group", a.self.name)
		}
		return found, nil
	}
	switch ok, err := a.allows(found.uid); {
	case err != nil:
		return account{}, err
	case !ok:
		return account{}, fmt.Errorf("run.user: commands may not run as user %s on this node: %s does not list it", found.name, a.setting("shell.allow_users"))
	}
	return found, nil
}

// setting names a setting and the file that has it.
func (a *accounts) setting(name string) string {
	if a.file == "" {
		return name + " in the configuration file (serve --config)"
	}
	return name + " in " + a.file
}

// errLookup is a failed look-up that leaves the account unknown: the machine was out of files, or
// its directory service did not answer.
type errLookup struct {
	what string // user or group, with its name
	err  error
}

func (e errLookup) Error() string { return fmt.Sprintf("%s could not be looked up: %v", e.what, e.err) }
func (e errLookup) Unwrap() error { return e.err }

// isUnknown reports whether the system lacks the account, as does a machine without a list of
// accounts.
func isUnknown(err error) bool {
	var (
		name  user.UnknownUserError
		id    user.UnknownUserIdError
		group user.UnknownGroupError
	)
	return errors.As(err, &name) || errors.As(err, &id) || errors.As(err, &group) || errors.Is(err, fs.ErrNotExist)
}

// lookupUser finds a user by name or number. A number need not have a name.
func lookupUser(name string) (account, error) {
	u, err := user.Lookup(name)
	if n, notNumber := strconv.ParseUint(name, 10, 32); err != nil && isUnknown(err) && notNumber == nil {
		if u, err = user.LookupId(name); err != nil && isUnknown(err) {
			return account{name: name, home: "/", uid: uint32(n), nameless: true}, nil
		}
	}
	switch {
	case err != nil && isUnknown(err):
		return account{}, fmt.Errorf("user %s does not exist on this machine", name)
	case err != nil:
		return account{}, errLookup{"user " + name, err}
	}
	found := account{name: u.Username, home: u.HomeDir}
	if found.uid, err = number(u.Uid); err != nil {
		return account{}, fmt.Errorf("user %s: %w", name, err)
	}
	if found.gid, err = number(u.Gid); err != nil {
		return account{}, fmt.Errorf("user %s: %w", name, err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return account{}, errLookup{"groups of user " + name, err}
	}
	for _, text := range groups {
		gid, err := number(text)
		if err != nil {
			return account{}, fmt.Errorf("groups of user %s: %w", name, err)
		}
		found.groups = append(found.groups, gid)
	}
	return found, nil
}

func lookupGroup(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	switch {
	case err == nil:
		return number(g.Gid)
	case !isUnknown(err):
		return 0, errLookup{"group " + name, err}
	}
	gid, err := number(name)
	if err != nil {
		return 0, fmt.Errorf("group %s does not exist on this machine", name)
	}
	return gid, nil
}

func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}

// Users are the users that commands may run as.
type Users struct {
	// Names are the users that a job may name, by name and number; "*" is every user but root,
	// and "" a job that names none.
	Names []string
	// Configured are the users that the configuration lists, and Absent the users that the machine
	// lacks.
	Configured []string
	Absent     []string
	// Self is the user of a node that cannot switch users, "" if it can.
	Self string
}

// Users returns the users that commands may run as, by the present configuration.
func (e *Executor) Users() Users {
	a := e.accounts.Load()
	if !a.root {
		return Users{Names: []string{"", a.self.name, strconv.Itoa(int(a.self.uid))}, Self: a.self.name}
	}
	u := Users{Configured: a.configured}
	if a.defaultUser != "" {
		u.Names = append(u.Names, "")
	}
	for _, name := range a.allowed {
		if name == "*" {
			u.Names = append(u.Names, name)
			continue
		}
		found, err := lookupUser(name)
		var lookup errLookup
		switch {
		case err == nil:
			u.Names = append(u.Names, found.name, strconv.Itoa(int(found.uid)))
		case errors.As(err, &lookup): // the machine may know it later
			u.Names = append(u.Names, name)
		default:
			u.Absent = append(u.Absent, name)
		}
	}
	return u
}

// HasShell reports whether commands find sh.
func (e *Executor) HasShell() bool {
	return FindsShell(e.config.Path)
}

// FindsShell reports whether commands with a PATH, "" for the default one, find sh.
func FindsShell(path string) bool {
	_, missing := lookPath(defaultShell, cmp.Or(path, defaultPath))
	return missing == nil
}
