//go:build !linux

package localserver

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"syscall"
)

// setDeathSignal does nothing: only Linux has it.
func setDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}

// childrenOf returns the live children of the process.
func childrenOf(pid int) []int {
	out, err := exec.Command("ps", "-axo", "pid=,ppid=").Output()
	if err != nil {
		return nil
	}
	var children []int
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		var child, parent int
		if _, err := fmt.Sscan(sc.Text(), &child, &parent); err == nil && parent == pid {
			children = append(children, child)
		}
	}
	return children
}
