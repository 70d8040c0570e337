package testscripts

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/spoptest"
)

// command is a command of the scripts. Its error is why it did not hold. errUsage is a mistake in the
// script, and fails it even after "!" or await.
type command struct {
	usage string
	run   func(w *world, ts *testscript.TestScript, args []string) error
}

var (
	errUsage = errors.New("usage")
	// errProgram means that a program failed. That does not count as a condition that does not hold.
	errProgram = errors.New("program failed")
)

// commands are all commands except await, by name. doc.go describes them.
var commands = map[string]command{
	"instances": {"N [-waves LIST] [-soak DURATION] [-api VERSION] [-directories named|forgotten] [-users file|haproxy.cfg]", startInstances},
	"joins":     {"NAME...", joinPods},
	"leaves":    {"NAME...", leavePods},
	"password":  {"TEXT", setPassword},
	"edit":      {"NAME OLD NEW", editConfig},
	"reload":    {"NAME", reloadByHand},
	"restart":   {"NAME haproxy|api", restartByHand},
	"down":      {"NAME", downInstance},
	"up":        {"NAME", upInstance},
	"fault":     {"NAME KIND[=ARGUMENT] [METHOD PATH [TIMES]]", injectFault},
	"occupy":    {"NAME PORT", occupyPort},
	"release":   {"", releasePorts},
	"requests":  {"NAME", printRequests},
	"wrote":     {"NAME REGEXP", wroteCall},
	"pushes":    {"NAME N", countPushes},
	"workers":   {"", printWorkers},
	"cluster":   {"start | stop | resume | expire | account NAMESPACE/NAME FILE | proxy FILE | foreign ANSWER|none", changeCluster},
	"kubectl":   {"ARG...", runKubectl},
	"health":    {"PHASE NAMESPACE/NAME", checkHealth},
	"service":   {"[-app PROTOCOL] [-tcp PORT] FILE NAMESPACE/NAME [POD...]", writeService},
	"gone":      {"POD...", endPods},
	"secret":    {"[-mismatched] FILE NAMESPACE/NAME HOST...", writeSecret},
	"identity":  {"FILE NAME", addIdentity},
	"certify":   {"FOLDER", certifyWebhook},
	"fill":      {"FILE...", fillFiles},
	"get":       {"[-on NAME] URL WANT...", getURL},
	"post":      {"[-on NAME] URL WANT...", postURL},
	"spread":    {"URL WANT...", spreadURL},
	"presents":  {"HOST SECRET|fallback", presentsCertificate},
	"answers":   {"URL STATUS [REGEXP]", answersURL},
	"talk":      {"NAME websocket|poll|grpc URL|HOST", startTalk},
	"say":       {"NAME TEXT POD", sayText},
	"load":      {"[-new|-raw] NAME URL", startLoad},
	"answered":  {"NAME N", answeredLoad},
	"unload":    {"NAME", stopLoad},
	"collector": {"[-hang]", startCollector},
	"spans":     {"REGEXP", printSpans},
	"start":     {"[-as NAME] PROGRAM ARG...", startProgram},
	"quit":      {"NAME", quitProgram},
	"crash":     {"NAME", crashProgram},
	"pause":     {"NAME", pauseProgram},
	"resume":    {"NAME", resumeProgram},
	"logged":    {"NAME REGEXP", loggedLine},
	"exits":     {"CODE PROGRAM ARG...", exitsWith},
	"says":      {"REGEXP PROGRAM ARG...", saysText},
	"agent":     {"start|stop SOCKET", changeAgent},
	"settled":   {"STATE [NAME...]", settledFleet},
}

// scriptCommands returns the commands for testscript.
func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	out := map[string]func(*testscript.TestScript, bool, []string){"await": await}
	for name := range commands {
		out[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if err := try(ts, neg, name, args); err != nil {
				ts.Fatalf("%v%s", err, worldOf(ts).logs())
			}
		}
	}
	return out
}

// try runs a command once. With neg it must not hold.
func try(ts *testscript.TestScript, neg bool, name string, args []string) error {
	c, ok := commands[name]
	if !ok {
		ts.Fatalf("there is no command %q to wait for", name)
	}
	err := c.run(worldOf(ts), ts, args)
	switch {
	case errors.Is(err, errUsage):
		ts.Fatalf("%v: %s %s", err, name, c.usage)
	case !neg || errors.Is(err, errProgram):
		return err
	case err == nil:
		return fmt.Errorf("%s holds, and should not", name)
	}
	return nil
}

// patience is how long await waits by default. It looks more and more rarely, since some checks start a
// program.
const (
	patience  = 3 * time.Minute
	firstLook = 20 * time.Millisecond
	lastLook  = 250 * time.Millisecond
)

// await repeats a command until it holds.
func await(ts *testscript.TestScript, neg bool, args []string) {
	within := patience
	if len(args) > 1 && args[0] == "-within" {
		var err error
		within, err = time.ParseDuration(args[1])
		ts.Check(err)
		args = args[2:]
	}
	negCommand := len(args) > 0 && args[0] == "!"
	if negCommand {
		args = args[1:]
	}
	if neg || len(args) == 0 {
		ts.Fatalf("usage: await [-within DURATION] [!] COMMAND ARG...")
	}
	err := poll(within, func() error {
		worldOf(ts).mustRun(ts)
		return try(ts, negCommand, args[0], args[1:])
	})
	if err != nil {
		ts.Fatalf("waited %s in vain: %v%s", within, err, worldOf(ts).logs())
	}
}

// poll repeats a check until it holds. After the time is up, it returns the last error.
func poll(within time.Duration, check func() error) error {
	deadline := time.After(within)
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-deadline:
			return err
		case <-time.After(wait):
		}
	}
}

// addIdentity adds a new identity to a file, like age-keygen.
func addIdentity(_ *world, ts *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	before, err := os.ReadFile(ts.MkAbs(args[0]))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	made, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	ts.Setenv(args[1], made.Recipient().String())
	text := string(before) + "# public key: " + made.Recipient().String() + "\n" + made.String() + "\n"
	return replaceFile(ts.MkAbs(args[0]), []byte(text))
}

// doubleOnly matches lines of a script for which a real Dataplane API cannot be used: a fault inside of the
// API, or a named version.
var doubleOnly = regexp.MustCompile(`(?m)^(fault \S+ '?(fail-reload|disk-full)|instances .*-api )`)

// realAPIFor returns the real Dataplane API for the script in a folder, if there is one and the script can use
// it. It returns "" for the double.
func realAPIFor(workDir string) (string, error) {
	program, _ := dataplanetest.Real(filepath.Join(binaries, "haproxy")) // the contract suite reports why there is none
	if program == "" {
		return "", nil
	}
	name := strings.TrimPrefix(filepath.Base(workDir), "script-")
	script, err := os.ReadFile(name + ".txtar")
	if err != nil || doubleOnly.Match(script) {
		return "", err
	}
	return filepath.Abs(program)
}

// certifyWebhook writes the key pair of the admission webhook, in the form of a mounted Secret.
func certifyWebhook(w *world, ts *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	made, err := newKeyPair([]string{w.network.ip(webhookHost)})
	if err != nil {
		return err
	}
	dir := ts.MkAbs(args[0])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.certificate.Raw})
	ts.Setenv("CA_BUNDLE", base64.StdEncoding.EncodeToString(certificate))
	if err := replaceFile(filepath.Join(dir, corev1.TLSCertKey), certificate); err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, corev1.TLSPrivateKeyKey), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: made.key}))
}

// changeAgent starts or stops an agent for which the word "attack" in a request is an attack.
func changeAgent(w *world, ts *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	path := filepath.Join(w.dir, args[1])
	switch args[0] {
	case "start":
		a := &spoptest.Agent{Network: "unix", Address: path, Answers: spoptest.LooksForAttacks}
		if err := a.Start(); err != nil {
			return err
		}
		if w.agents == nil {
			w.agents = map[string]*spoptest.Agent{}
		}
		w.agents[path] = a
		ts.Defer(a.Stop)
		return nil
	case "stop":
		if a := w.agents[path]; a != nil {
			a.Stop()
			return nil
		}
	}
	return errUsage
}
