package server

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestInheritedFilesAreNotPassedToCommands(t *testing.T) {
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil { // as a parent leaves it open
		t.Fatal(err)
	}
	defer syscall.Close(pipe[0])
	defer syscall.Close(pipe[1])
	open := func() bool {
		names, err := exec.Command("ls", "/dev/fd").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains("\n"+string(names), "\n"+strconv.Itoa(pipe[1])+"\n")
	}
	if !open() {
		t.Fatal("a child does not have the pipe")
	}
	keepInherited()
	if open() {
		t.Error("a child has the pipe still")
	}
}
