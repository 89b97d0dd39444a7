//go:build !linux

package services

import "syscall"

// attributes puts a server into a process group of its own, so that Ctrl-C on
// the terminal reaches only the program that uses it. Only Linux can tie a
// server's life to this process.
func attributes(detached bool) *syscall.SysProcAttr {
	if detached {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true}
}
