// go 1.27

// Trace has goroutines that wait, sleep, are locked to a thread and compute, until the bytes of its
// standard input are over: for GODEBUG=schedtrace.
package main

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

var sink atomic.Uint64

func computes() {
	for {
		sink.Add(1)
	}
}

func locked() {
	runtime.LockOSThread()
	<-make(chan int)
}

func main() {
	go func() { <-make(chan int) }()
	go func() { select {} }()
	go time.Sleep(time.Hour)
	go locked()
	for range 4 {
		go computes()
	}
	var buffer [64]byte
	for {
		if n, err := os.Stdin.Read(buffer[:]); n == 0 || err != nil {
			return
		}
	}
}
