package testscripts

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/internal/testing/race"
)

// binaries is the folder with our programs, and with the haproxy, kubectl and kustomize under these names. It
// is first on the PATH of every script.
var binaries string

// binariesVariable has this folder for the process in the network namespace, which has no network to get
// modules from.
const binariesVariable = "HAPSNAP_TESTSCRIPTS_BINARIES"

// raceOptions end a program at its first data race. Without these options, each program would sleep for a
// second at its end, and the tests run a thousand.
const raceOptions = "halt_on_error=1 atexit_sleep_ms=20"

var update = flag.Bool("update", false, "rewrite what cmp compares with in the scripts")

func TestMain(m *testing.M) {
	flag.Parse()
	if err := moreParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(withPrograms(func() int { return kubetest.InNamespace(m.Run) }))
}

// moreParallel runs more scripts at once than there are processors, unless a flag says otherwise: a script
// mostly waits for other processes.
func moreParallel() error {
	told := false
	flag.Visit(func(f *flag.Flag) { told = told || f.Name == "test.parallel" })
	if told {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0)))
}

// withPrograms builds the programs, and removes them after run.
func withPrograms(run func() int) int {
	if binaries = os.Getenv(binariesVariable); binaries != "" {
		return run()
	}
	dir, err := os.MkdirTemp("", "hapsnap-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := errors.Join(build(dir), os.Setenv(binariesVariable, dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run()
}

// racing is the folder in binaries with the programs that have the race detector.
const racing = "racing"

// build builds the programs. If the tests have the race detector, or RACE_PROGRAMS is set, programs that keep
// running have it too. Short commands, of which the stories run a thousand, do not: with the detector they take
// several times as long. Neither has hapsnap, which is the same code as the two others.
func build(dir string) error {
	if err := goBuild(dir+"/", []string{"compiler", "pusher", "hapsnap"}); err != nil {
		return err
	}
	if race.Enabled || os.Getenv("RACE_PROGRAMS") != "" {
		flags := append(strings.Fields(os.Getenv("RACE_FLAGS")), "-race")
		if err := goBuild(filepath.Join(dir, racing)+"/", []string{"compiler", "pusher"}, flags...); err != nil {
			return err
		}
	}
	haproxy, err := findHAProxy(cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		return err
	}
	for _, name := range []string{"kubectl", "kustomize"} {
		path, err := kubetest.Binary(name)
		if err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return os.Symlink(haproxy, filepath.Join(dir, "haproxy"))
}

// thatRunsOn returns the path of a program that keeps running: the one with the race detector, if there is one.
func thatRunsOn(path string) string {
	found := filepath.Join(binaries, racing, filepath.Base(path))
	if _, err := os.Stat(found); err != nil || filepath.Dir(path) != binaries {
		return path
	}
	return found
}

func goBuild(to string, programs []string, flags ...string) error {
	args := slices.Concat([]string{"build", "-buildvcs=false", "-o", to}, flags)
	for _, name := range programs {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = ".."
	if slices.Contains(flags, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // for the race detector
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// findHAProxy finds the binary, since /usr/sbin may not be on the PATH.
func findHAProxy(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath(filepath.Join("/usr/sbin", name))
	}
	if err != nil {
		return "", fmt.Errorf("find haproxy: %w", err)
	}
	return filepath.Abs(path)
}

// TestStories runs every story of this folder.
func TestStories(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: ".", Setup: setup, Cmds: scriptCommands(),
		RequireUniqueNames: true, UpdateScripts: *update,
	})
}

// setup gives a script its world.
func setup(env *testscript.Env) error {
	w, err := newWorld(env.WorkDir)
	if err != nil {
		return err
	}
	env.Defer(w.close)
	if w.realAPI, err = realAPIFor(env.WorkDir); err != nil {
		return err
	}
	home := filepath.Join(env.WorkDir, ".home")
	if err := os.Mkdir(home, 0o755); err != nil {
		return err
	}
	env.Setenv("HOME", home)
	env.Setenv("PATH", binaries+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	env.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	env.Setenv("BIN", binaries)
	examples, err := filepath.Abs("../examples")
	if err != nil {
		return err
	}
	env.Setenv("EXAMPLES", examples)
	crds, err := kubetest.GatewayAPIFolder()
	if err != nil {
		return err
	}
	env.Setenv("GATEWAY_API", crds)
	env.Setenv("GORACE", raceOptions)
	env.Setenv("COMPILER", w.network.address(compilerHost))
	env.Setenv("PUSHER", w.network.address(pusherHost))
	env.Setenv("WEBHOOK", w.network.address(webhookHost))
	env.Setenv("PARTNER", strconv.Itoa(w.network.Partner))
	env.Setenv("SECOND", strconv.Itoa(w.network.Second))
	env.Values[worldKey{}] = w
	return nil
}

type worldKey struct{}

func worldOf(ts *testscript.TestScript) *world { return ts.Value(worldKey{}).(*world) }
