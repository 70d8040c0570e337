package testscripts

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hapsnap/hapsnap/internal/child"
	"github.com/hapsnap/hapsnap/internal/testing/output"
)

// quitTimeout is how long a program may take to end after SIGTERM. It is the time that a kubelet gives.
const quitTimeout = time.Minute

// program is a compiler or a pusher that runs beside the script.
type program struct {
	cmd    *exec.Cmd
	output output.Buffer
	ended  <-chan struct{}
}

// launch starts a process that cannot outlive this one. quit checks the exit code.
func (p *program) launch() (err error) {
	p.ended, err = child.Start(p.cmd)
	return err
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// newProgram makes a program with the script's folder and environment.
func (w *world) newProgram(ts *testscript.TestScript, args []string) *program {
	path := args[0]
	if !strings.Contains(path, "/") {
		for dir := range strings.SplitSeq(ts.Getenv("PATH"), ":") {
			if found, err := exec.LookPath(dir + "/" + path); err == nil {
				path = found
				break
			}
		}
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"HOME", "PATH", "TMPDIR", "KUBECONFIG", "GIT_CONFIG_NOSYSTEM", "GORACE", "GOCOVERDIR", "OTEL_EXPORTER_OTLP_ENDPOINT", "TRACEPARENT"} {
		if value := ts.Getenv(name); value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	p := &program{cmd: cmd}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	return p
}

func startProgram(w *world, ts *testscript.TestScript, args []string) error {
	name := ""
	if len(args) > 2 && args[0] == "-as" {
		name, args = args[1], args[2:]
	}
	if len(args) == 0 {
		return errUsage
	}
	if name == "" {
		name = args[0]
	}
	if _, runs := w.programs[name]; runs {
		return fmt.Errorf("%w: %s runs already", errUsage, name)
	}
	p := w.newProgram(ts, args)
	p.cmd.Path = thatRunsOn(p.cmd.Path)
	if err := p.launch(); err != nil {
		return err
	}
	w.programs[name] = p
	return nil
}

// mustRun fails the script if a program ended by itself.
func (w *world) mustRun(ts *testscript.TestScript) {
	for name, p := range w.programs {
		select {
		case <-p.ended:
			ts.Fatalf("%s ended by itself: %s%s", name, p.cmd.ProcessState, w.logs())
		default:
		}
	}
}

// running returns the program with the first name.
func (w *world) running(args []string, want int) (*program, error) {
	if len(args) != want {
		return nil, errUsage
	}
	p, ok := w.programs[args[0]]
	if !ok {
		return nil, fmt.Errorf("%w: %s was not started", errUsage, args[0])
	}
	return p, nil
}

func quitProgram(w *world, _ *testscript.TestScript, args []string) error {
	p, err := w.running(args, 1)
	if err != nil {
		return err
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // if it ended before, the exit code shows it
	select {
	case <-p.ended:
	case <-time.After(quitTimeout):
		before := len(p.output.String())
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it prints its stacks
		<-p.ended
		return fmt.Errorf("%s still runs %s after SIGTERM:\n%s", args[0], quitTimeout, p.output.String()[before:])
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s ended with %s", args[0], p.cmd.ProcessState)
	}
	delete(w.programs, args[0])
	return nil
}

func crashProgram(w *world, _ *testscript.TestScript, args []string) error {
	p, err := w.running(args, 1)
	if err != nil {
		return err
	}
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended by itself: %s", args[0], p.cmd.ProcessState)
	default:
	}
	p.kill()
	delete(w.programs, args[0])
	return nil
}

func pauseProgram(w *world, _ *testscript.TestScript, args []string) error {
	return w.signal(args, syscall.SIGSTOP)
}

func resumeProgram(w *world, _ *testscript.TestScript, args []string) error {
	return w.signal(args, syscall.SIGCONT)
}

func (w *world) signal(args []string, signal syscall.Signal) error {
	p, err := w.running(args, 1)
	if err != nil {
		return err
	}
	return p.cmd.Process.Signal(signal)
}

func loggedLine(w *world, _ *testscript.TestScript, args []string) error {
	p, err := w.running(args, 2)
	if err != nil {
		return err
	}
	return match(args[1], p.output.String())
}

func saysText(w *world, ts *testscript.TestScript, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	p, err := w.run(ts, args[1:])
	if err != nil {
		return err
	}
	return match(args[0], p.output.String())
}

func exitsWith(w *world, ts *testscript.TestScript, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		return errUsage
	}
	p := w.newProgram(ts, args[1:])
	p.cmd.Stdout, p.cmd.Stderr = ts.Stdout(), ts.Stderr()
	if err := p.finish(); err != nil {
		return err
	}
	if code := p.cmd.ProcessState.ExitCode(); code != want {
		return fmt.Errorf("%s: %s, want exit code %d", args[1], p.cmd.ProcessState, want)
	}
	return nil
}

// finish runs the program until it ends. It ends the program if that takes too long.
func (p *program) finish() error {
	if err := p.launch(); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.kill()
	}
	return nil
}

// run runs a program that must succeed.
func (w *world) run(ts *testscript.TestScript, args []string) (*program, error) {
	p := w.newProgram(ts, args)
	if err := p.finish(); err != nil {
		return nil, err
	}
	if !p.cmd.ProcessState.Success() {
		return nil, fmt.Errorf("%w: %s: %s\n%s", errProgram, strings.Join(args, " "), p.cmd.ProcessState, p.output.String())
	}
	return p, nil
}

// status is the part of pusher status -o json that scripts use.
type status struct {
	Rollout   *struct{ Phase string } `json:"rollout"`
	Instances []struct {
		Name   string `json:"name"`
		InSync bool   `json:"inSync"`
	} `json:"instances"`
}

func settledFleet(w *world, ts *testscript.TestScript, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	ask := []string{"pusher", "status", "--state", args[0], "-o", "json"}
	if strings.HasPrefix(args[0], "secret:") {
		ask = append(ask, "--kubeconfig", ts.Getenv("KUBECONFIG"))
	}
	p, err := w.run(ts, ask)
	if err != nil {
		return err
	}
	var s status
	if err := json.Unmarshal([]byte(p.output.String()), &s); err != nil {
		return err
	}
	if s.Rollout != nil {
		return fmt.Errorf("the rollout is %s", s.Rollout.Phase)
	}
	inSync := map[string]bool{}
	for _, i := range s.Instances {
		inSync[i.Name] = i.InSync
	}
	names := args[1:]
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(inSync))
	}
	if len(names) == 0 {
		return errors.New("no instance has joined")
	}
	for _, name := range names { // they may not have joined yet
		if !inSync[name] {
			return fmt.Errorf("%s is not in sync\n%s", name, p.output.String())
		}
	}
	return nil
}

// match searches for a regular expression, in which ^ and $ match at lines.
func match(expression, text string) error {
	r, err := regexp.Compile("(?m)" + expression)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if !r.MatchString(text) {
		return fmt.Errorf("no match for %q in\n%s", expression, text)
	}
	return nil
}
