// go 1.27

// Ends ends itself in the way that its argument names, beside one goroutine that waits.
package main

import (
	"errors"
	"os"
	"runtime"
	"sync"
)

var (
	never = make(chan int)
	other = make(chan int)
	sink  int
)

func bystander() {
	<-other
}

func deadlockReceive() {
	<-never
}

func deadlockSend() {
	never <- 1
}

func deadlockNilReceive() {
	var none chan int
	<-none
}

func deadlockNilSend() {
	var none chan int
	none <- 1
}

func deadlockSelect() {
	select {
	case <-never:
	case never <- 1:
	}
}

func deadlockSelectNothing() {
	select {}
}

func deadlockMutex() {
	var lock sync.Mutex
	lock.Lock()
	lock.Lock()
}

func deadlockRead() {
	var lock sync.RWMutex
	lock.Lock()
	lock.RLock()
}

func deadlockWrite() {
	var lock sync.RWMutex
	lock.RLock()
	lock.Lock()
}

func deadlockGroup() {
	var group sync.WaitGroup
	group.Add(1)
	group.Wait()
}

func deadlockCond() {
	var lock sync.Mutex
	cond := sync.NewCond(&lock)
	lock.Lock()
	cond.Wait()
}

func deadlockLocked() {
	runtime.LockOSThread()
	<-never
}

func panics() {
	panic("as asked")
}

func panicsWithError() {
	panic(errors.New("as asked"))
}

func panicsInGoroutine() {
	go panics()
	<-never
}

//go:noinline
func overflows(depth int) int {
	var room [256]byte
	room[depth%256] = byte(depth)
	sink += int(room[(depth+1)%256])
	return overflows(depth+1) + int(room[depth%256])
}

func main() {
	go bystander()
	runtime.Gosched()
	switch os.Args[1] {
	case "receive":
		deadlockReceive()
	case "send":
		deadlockSend()
	case "nil receive":
		deadlockNilReceive()
	case "nil send":
		deadlockNilSend()
	case "select":
		deadlockSelect()
	case "select nothing":
		deadlockSelectNothing()
	case "mutex":
		deadlockMutex()
	case "read":
		deadlockRead()
	case "write":
		deadlockWrite()
	case "group":
		deadlockGroup()
	case "cond":
		deadlockCond()
	case "locked":
		deadlockLocked()
	case "goexit":
		runtime.Goexit()
	case "panic":
		panics()
	case "panic error":
		panicsWithError()
	case "panic in goroutine":
		panicsInGoroutine()
	case "overflow":
		overflows(0)
	default:
		panic("no such end: " + os.Args[1])
	}
}
