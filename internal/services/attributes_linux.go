package services

import "syscall"

// attributes puts a server into a process group of its own, so that Ctrl-C on
// the terminal reaches only the program that uses it, and ties its life to
// this process unless it is detached.
func attributes(detached bool) *syscall.SysProcAttr {
	if detached {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
