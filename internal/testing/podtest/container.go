package podtest

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/internal/testing/imagetest"
)

// container is a container of a pod, through all of its lives.
type container struct {
	pod   *podRun
	spec  corev1.Container
	image imagetest.Image

	mu       sync.Mutex
	process  *process
	killed   *process // by the test
	last     *corev1.ContainerStateTerminated
	restarts int
	started  bool // its startup probe succeeded
	ready    bool
}

var signalNames = map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGUSR1": syscall.SIGUSR1, "SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT}

// start begins a life, in a fresh copy of the image's root.
func (c *container) start(ctx context.Context) error {
	p := c.pod
	c.mu.Lock()
	root := filepath.Join(p.dir, "root", fmt.Sprintf("%s-%d", c.spec.Name, c.restarts))
	c.mu.Unlock()
	if err := cloneTree(c.image.Root, root); err != nil {
		return err
	}
	s := spec{Root: root, Host: p.pod.Name, Mounts: mountsOf(c.spec, p.volumes), Dir: "/", Command: c.command()}
	if err := c.identify(&s); err != nil {
		return err
	}
	var err error
	if s.Env, err = c.environment(ctx); err != nil {
		return err
	}
	for i, arg := range s.Command {
		s.Command[i] = expand(arg, s.Env)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(c.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.sandbox.command(context.WithoutCancel(ctx), own)
	cmd.Env = []string{asShim + "=" + string(text)}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL}
	process, err := startProcess(cmd)
	if err != nil {
		return err
	}
	p.has(process)
	c.mu.Lock()
	c.process, c.started, c.ready = process, c.spec.StartupProbe == nil, c.spec.ReadinessProbe == nil && c.spec.StartupProbe == nil
	c.mu.Unlock()
	return nil
}

func (c *container) command() []string {
	command, args := c.spec.Command, c.spec.Args
	if len(command) == 0 {
		command = c.image.Entrypoint
		if len(args) == 0 {
			args = c.image.Cmd
		}
	}
	return slices.Concat(command, args)
}

// reference is $(NAME) in a command, or a dollar that stands for itself.
var reference = regexp.MustCompile(`\$\$|\$\([A-Za-z_][A-Za-z0-9_.-]*\)`)

// expand puts values of variables into a word of a command, as a kubelet does; one that is not set stays as it is.
func expand(word string, env []string) string {
	return reference.ReplaceAllStringFunc(word, func(found string) string {
		if found == "$$" {
			return "$"
		}
		name := found[len("$("):len(found)-1] + "="
		for _, e := range slices.Backward(env) {
			if value, ok := strings.CutPrefix(e, name); ok {
				return value
			}
		}
		return found
	})
}

// identify finds out as which user the container runs.
func (c *container) identify(s *spec) error {
	user, group, _ := strings.Cut(c.image.User, ":")
	s.UID, _ = strconv.Atoi(user)
	s.GID, _ = strconv.Atoi(group)
	if pod := c.pod.pod.Spec.SecurityContext; pod != nil {
		if pod.RunAsUser != nil {
			s.UID = int(*pod.RunAsUser)
		}
		if pod.RunAsGroup != nil {
			s.GID = int(*pod.RunAsGroup)
		}
		if pod.FSGroup != nil {
			s.Groups = append(s.Groups, int(*pod.FSGroup))
		}
	}
	if own := c.spec.SecurityContext; own != nil {
		if own.RunAsUser != nil {
			s.UID = int(*own.RunAsUser)
		}
		s.ReadOnly = own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem
	}
	if s.UID == 0 {
		return errors.New("it would run as root")
	}
	return nil
}

// environment returns the variables of the image, the kubelet and the container itself.
func (c *container) environment(ctx context.Context) ([]string, error) {
	pod := c.pod.pod
	_, port, err := net.SplitHostPort(c.pod.kubelet.api)
	if err != nil {
		return nil, err
	}
	out := append(slices.Clone(c.image.Env), "HOSTNAME="+pod.Name, "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT="+port)
	for _, e := range c.spec.Env {
		value := e.Value
		if from := e.ValueFrom; from != nil {
			switch {
			case from.FieldRef != nil:
				value, err = c.field(from.FieldRef.FieldPath)
			case from.SecretKeyRef != nil:
				var o corev1.Secret
				err = c.pod.kubelet.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: from.SecretKeyRef.Name}, &o)
				value = string(o.Data[from.SecretKeyRef.Key])
			case from.ConfigMapKeyRef != nil:
				var o corev1.ConfigMap
				err = c.pod.kubelet.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: from.ConfigMapKeyRef.Name}, &o)
				value = o.Data[from.ConfigMapKeyRef.Key]
			default:
				err = fmt.Errorf("variable %s is of a kind that is not known here", e.Name)
			}
		}
		if err != nil {
			return nil, err
		}
		out = append(out, e.Name+"="+value)
	}
	return out, nil
}

func (c *container) field(path string) (string, error) {
	pod := c.pod.pod
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "status.podIP":
		return c.pod.sandbox.address, nil
	case "status.hostIP":
		return Gateway, nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	}
	return "", fmt.Errorf("field %s is not known here", path)
}

// stop ends the container as a kubelet does: hook, signal, and no more patience.
func (c *container) stop(deadline time.Time) {
	c.mu.Lock()
	process := c.process
	c.mu.Unlock()
	if process == nil {
		return
	}
	// The steps before the signal.
	if c.spec.Lifecycle != nil && c.spec.Lifecycle.PreStop != nil {
		switch pre := c.spec.Lifecycle.PreStop; {
		case pre.Sleep != nil:
			select {
			case <-process.gone:
			case <-time.After(min(time.Until(deadline), time.Duration(pre.Sleep.Seconds)*time.Second)):
			}
		case pre.HTTPGet != nil:
			c.get(context.Background(), pre.HTTPGet, time.Until(deadline))
		default:
			c.pod.kubelet.note("container %s of %s has a hook that is not known here", c.spec.Name, c.pod.pod.Name)
		}
	}
	signal, ok := signalNames[c.image.StopSignal]
	if !ok {
		signal = syscall.SIGTERM
	}
	process.kill(signal)
	select {
	case <-process.gone:
	case <-time.After(time.Until(deadline)):
		c.pod.kubelet.note("container %s of %s was killed", c.spec.Name, c.pod.pod.Name)
		process.kill(syscall.SIGKILL)
		<-process.gone
	}
}

// cloneTree makes a tree of hard links to another's files.
func cloneTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755) //nolint:gosec // as in an image
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		}
		return os.Link(path, target)
	})
}

// ended returns how a life ended, with the end of the container's output if the pod asks for that. The caller
// holds the mutex.
func (c *container) ended(life *process) *corev1.ContainerStateTerminated {
	out := &corev1.ContainerStateTerminated{ExitCode: life.code(), Reason: "Completed"}
	if out.ExitCode == 0 {
		return out
	}
	out.Reason = "Error"
	if c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		text, _ := os.ReadFile(c.log())                             // it may have written nothing
		out.Message = string(text[max(0, len(text)-messageBytes):]) // a kubelet's bound
	}
	return out
}

// messageBytes is how long a termination message is that comes from the log.
const messageBytes = 2048

func (c *container) log() string { return filepath.Join(c.pod.dir, c.spec.Name+".log") }

// probe runs the probes of one life of a container.
func (c *container) probe(ctx context.Context, life *process) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		<-life.gone
		cancel()
	}()
	if p := c.spec.StartupProbe; p != nil {
		if !c.repeat(ctx, p, func(failures int32, ok bool) (done bool) { return ok || failures >= p.FailureThreshold }) {
			life.kill(syscall.SIGKILL)
			return
		}
		c.set(life, true, c.spec.ReadinessProbe == nil)
	}
	if p := c.spec.LivenessProbe; p != nil {
		go c.repeat(ctx, p, func(failures int32, _ bool) bool {
			if failures >= p.FailureThreshold {
				c.pod.kubelet.note("container %s of %s is not alive", c.spec.Name, c.pod.pod.Name)
				life.kill(syscall.SIGKILL)
				return true
			}
			return false
		})
	}
	if p := c.spec.ReadinessProbe; p != nil {
		c.repeat(ctx, p, func(failures int32, ok bool) bool {
			if ok {
				c.set(life, true, true)
			} else if failures >= p.FailureThreshold {
				c.set(life, true, false)
			}
			return false
		})
	}
	<-ctx.Done()
}

func (c *container) set(life *process, started, ready bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == life {
		c.started, c.ready = started, ready
	}
}

// repeat probes until a function returns true. It returns the result of the last probe.
func (c *container) repeat(ctx context.Context, p *corev1.Probe, done func(failures int32, ok bool) bool) bool {
	failures := int32(0)
	delay := time.Duration(p.InitialDelaySeconds) * time.Second
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(delay):
		}
		ok := c.attempt(ctx, p)
		if failures++; ok {
			failures = 0
		}
		if done(failures, ok) {
			return ok
		}
		delay = time.Duration(cmp.Or(p.PeriodSeconds, 10)) * time.Second
		if p != c.spec.LivenessProbe { // that of a busy machine must not end containers earlier than the pod says
			delay = min(time.Second, delay) // a test has no time
		}
	}
}

func (c *container) attempt(ctx context.Context, p *corev1.Probe) bool {
	limit := time.Duration(cmp.Or(p.TimeoutSeconds, 1)) * time.Second
	switch {
	case p.HTTPGet != nil:
		return c.get(ctx, p.HTTPGet, limit)
	case p.TCPSocket != nil:
		d := net.Dialer{Timeout: limit}
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(c.pod.sandbox.address, fmt.Sprint(c.port(p.TCPSocket.Port))))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	c.pod.kubelet.note("container %s of %s has a probe that is not known here", c.spec.Name, c.pod.pod.Name)
	return false
}

func (c *container) get(ctx context.Context, get *corev1.HTTPGetAction, limit time.Duration) bool {
	url := fmt.Sprintf("%s://%s:%d%s", strings.ToLower(string(cmp.Or(get.Scheme, corev1.URISchemeHTTP))), c.pod.sandbox.address, c.port(get.Port), get.Path)
	h := http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // as a kubelet does
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := h.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode >= 200 && response.StatusCode < 400
}

func (c *container) port(port intstr.IntOrString) int32 { return portOf(&c.pod.pod.Spec, port) }

// portOf finds a port by its name among those of all containers.
func portOf(spec *corev1.PodSpec, port intstr.IntOrString) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for _, c := range containers {
			for _, p := range c.Ports {
				if p.Name == port.StrVal {
					return p.ContainerPort
				}
			}
		}
	}
	return 0
}

// runLimit bounds a command that should end by itself.
const runLimit = 5 * time.Minute

// Run runs a command in an image, as the image's user, in a root that nobody may write, and
// returns its output. Folders of this machine are mounted where mounts says.
func Run(tb testing.TB, image imagetest.Image, mounts map[string]string, command ...string) (string, error) {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("images are run by root only")
	}
	root := filepath.Join(tb.TempDir(), "root")
	if err := cloneTree(image.Root, root); err != nil {
		tb.Fatal(err)
	}
	for _, dir := range []string{root, filepath.Dir(root), filepath.Dir(filepath.Dir(root))} {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the image's user passes through
			tb.Fatal(err)
		}
	}
	user, group, _ := strings.Cut(image.User, ":")
	uid, wrong := strconv.Atoi(user)
	gid, err := strconv.Atoi(group)
	if wrong != nil || err != nil || uid == 0 || gid == 0 {
		tb.Fatalf("the image's user is %q, want two numbers that are not root's", image.User)
	}
	s := spec{Root: root, Host: "test", ReadOnly: true, Dir: "/", Command: command, Env: image.Env, UID: uid, GID: gid}
	for target, source := range mounts {
		s.Mounts = append(s.Mounts, mount{Source: source, Target: target})
	}
	text, err := json.Marshal(s)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	c := exec.CommandContext(ctx, "/proc/self/exe")
	c.Env, c.WaitDelay = []string{asShim + "=" + string(text)}, time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS}
	out, err := c.CombinedOutput()
	return string(out), err
}
