// go 1.27

// States has goroutines in every state that ours have too, one function for each, and shows them
// in the way that its argument names: stack, profile1, profile2, quit.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	sink    atomic.Uint64
	started atomic.Int32
	kept    *os.File
)

func chanReceive() {
	never := make(chan int)
	<-never
}

func chanSend() {
	never := make(chan int)
	never <- 1
}

func nilReceive() {
	var none chan int
	<-none
}

func nilSend() {
	var none chan int
	none <- 1
}

func selects() {
	never := make(chan int)
	select {
	case <-never:
	case never <- 1:
	}
}

func selectsNothing() {
	select {}
}

func sleeps() {
	time.Sleep(time.Hour)
}

func locksMutex(lock *sync.Mutex) {
	lock.Lock()
}

func locksRead(lock *sync.RWMutex) {
	lock.RLock()
}

func locksWrite(lock *sync.RWMutex) {
	lock.Lock()
}

func waitsCond(lock *sync.Mutex) {
	cond := sync.NewCond(lock)
	lock.Lock()
	cond.Wait()
}

func waitsGroup(group *sync.WaitGroup) {
	group.Wait()
}

func waitsIo(end *os.File) {
	var buffer [1]byte
	end.Read(buffer[:])
}

func inSyscall(fd int) {
	var buffer [1]byte
	syscall.Read(fd, buffer[:])
}

//go:noinline
func spins() {
	started.Add(1)
	for {
		sink.Add(1)
	}
}

func neverStarted() {
	sink.Add(1)
}

func locked() {
	runtime.LockOSThread()
	never := make(chan int)
	<-never
}

func labelled() {
	never := make(chan int)
	<-never
}

func start() {
	held, heldRead, heldWrite := new(sync.Mutex), new(sync.RWMutex), new(sync.RWMutex)
	held.Lock()
	heldWrite.Lock()
	heldRead.RLock()
	group := new(sync.WaitGroup)
	group.Add(1)
	reader, writer, err := os.Pipe()
	check(err)
	kept = writer
	var ends [2]int
	check(syscall.Pipe(ends[:]))
	go chanReceive()
	go chanSend()
	go nilReceive()
	go nilSend()
	go selects()
	go selectsNothing()
	go sleeps()
	go locksMutex(held)
	go locksRead(heldWrite)
	go locksWrite(heldRead)
	go waitsCond(new(sync.Mutex))
	go waitsGroup(group)
	go waitsIo(reader)
	go inSyscall(ends[0])
	go locked()
	pprof.Do(context.Background(), pprof.Labels("kind", "plain", "with space", "a b"), func(context.Context) {
		go labelled()
	})
}

// reasons are the states in which those of start must be.
var reasons = map[string]string{
	"chanReceive": "chan receive", "chanSend": "chan send",
	"nilReceive": "chan receive (nil chan)", "nilSend": "chan send (nil chan)",
	"selects": "select", "selectsNothing": "select (no cases)", "sleeps": "sleep",
	"locksMutex": "sync.Mutex.Lock", "locksRead": "sync.RWMutex.RLock", "locksWrite": "sync.RWMutex.Lock",
	"waitsCond": "sync.Cond.Wait", "waitsGroup": "sync.WaitGroup.Wait", "waitsIo": "IO wait",
	"inSyscall": "syscall", "locked": "chan receive, locked to thread", "labelled": "chan receive",
}

// settle waits until all of start wait.
func settle() {
	for deadline := time.Now().Add(2 * time.Minute); ; runtime.Gosched() {
		missing := ""
		blocks := strings.Split(stacks(), "\n\n")
		for name, reason := range reasons {
			if !has(blocks, name, reason) {
				missing = name
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			panic("does not wait: " + missing)
		}
	}
}

func has(blocks []string, name, reason string) bool {
	for _, block := range blocks {
		if strings.Contains(block, "\nmain."+name+"(") && strings.Contains(block, " ["+reason+"]") {
			return true
		}
	}
	return false
}

func stacks() string {
	for size := 1 << 16; ; size *= 2 {
		buffer := make([]byte, size)
		if n := runtime.Stack(buffer, true); n < size {
			return string(buffer[:n])
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	start()
	settle()
	switch os.Args[1] {
	case "stack":
		go neverStarted()
		fmt.Print(stacks())
	case "profile1":
		for range 4 {
			go chanReceive()
		}
		for strings.Count(stacks(), "\nmain.chanReceive(") < 5 {
			runtime.Gosched()
		}
		check(pprof.Lookup("goroutine").WriteTo(os.Stdout, 1))
	case "profile2":
		check(pprof.Lookup("goroutine").WriteTo(os.Stdout, 2))
	case "quit":
		go spins()
		for started.Load() == 0 {
			runtime.Gosched()
		}
		fmt.Println("ready")
		<-make(chan int)
	default:
		panic("no such way: " + os.Args[1])
	}
}
