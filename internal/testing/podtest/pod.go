package podtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podRun is a running pod.
type podRun struct {
	kubelet *Kubelet
	pod     *corev1.Pod
	dir     string
	cancel  context.CancelFunc

	sandbox *sandbox
	volumes map[string]string

	// settled is closed when the lists of containers are final.
	settled        chan struct{}
	sidecars, main []*container

	ending         atomic.Bool // containers are not started again
	sidecarsEnding atomic.Bool
	// over is closed when the pod has to end, and until is when it must have ended.
	over    chan struct{}
	endOnce sync.Once
	until   time.Time
	lives   sync.WaitGroup
	told    corev1.PodStatus

	mu        sync.Mutex
	processes []*process // of all lives of all containers
	killed    bool
}

// has adds a process to those that must not outlive the pod.
func (p *podRun) has(life *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.processes = append(slices.DeleteFunc(p.processes, (*process).ended), life)
	if p.killed {
		life.kill(syscall.SIGKILL)
	}
}

// again is how long a retry waits.
const again = 200 * time.Millisecond

// refresh is how often volumes are updated.
const refresh = time.Second

// run is the life of a pod, until the context ends.
func (p *podRun) run(ctx context.Context) {
	if !p.begin(ctx) {
		return
	}
	for ctx.Err() == nil {
		p.tell(ctx)
		pause(ctx, look)
	}
}

// keepVolumes updates the pod's volumes until the pod ends. A volume whose ConfigMap or Secret cannot be read
// stays as it is.
func (p *podRun) keepVolumes(ctx context.Context) {
	for pause(ctx, refresh); ctx.Err() == nil; pause(ctx, refresh) {
		if _, err := p.kubelet.volumes(ctx, p.pod, p.volumesDir()); err != nil && ctx.Err() == nil && !p.ending.Load() {
			p.kubelet.note("pod %s: %v", p.pod.Name, err)
		}
	}
}

func (p *podRun) volumesDir() string { return filepath.Join(p.dir, "volumes") }

// begin starts the containers in the kubelet's order. It returns false if the pod ended first.
func (p *podRun) begin(ctx context.Context) bool {
	defer close(p.settled)
	for !p.prepared(ctx) {
		if ctx.Err() != nil || p.ending.Load() {
			return false
		}
		pause(ctx, again)
	}
	p.lives.Go(func() { p.keepVolumes(ctx) })
	for _, c := range p.pod.Spec.InitContainers {
		run := p.container(c)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			p.sidecars = append(p.sidecars, run)
			p.supervise(ctx, run, &p.sidecarsEnding)
			p.wait(ctx, run.hasStarted)
			continue
		}
		for !p.finish(ctx, run) {
			if ctx.Err() != nil || p.ending.Load() {
				return false
			}
			pause(ctx, again)
		}
	}
	if p.ending.Load() {
		return false
	}
	for _, c := range p.pod.Spec.Containers {
		run := p.container(c)
		p.main = append(p.main, run)
		p.supervise(ctx, run, &p.ending)
	}
	return true
}

// prepared makes the pod's network and volumes. It waits for a missing Secret.
func (p *podRun) prepared(ctx context.Context) bool {
	var err error
	if p.sandbox == nil {
		if p.sandbox, err = p.network(); errors.Is(err, syscall.EADDRINUSE) {
			return false // another pod still has its port
		}
		if err != nil {
			p.kubelet.note("pod %s: %v", p.pod.Name, err)
			return false
		}
	}
	if p.volumes, err = p.kubelet.volumes(ctx, p.pod, p.volumesDir()); err != nil {
		p.kubelet.note("pod %s: %v", p.pod.Name, err)
		return false
	}
	return true
}

// network makes the pod's network, or takes the node's.
func (p *podRun) network() (*sandbox, error) {
	if p.pod.Spec.HostNetwork {
		return &sandbox{address: Gateway}, nil
	}
	sysctls, ports := map[string]string{}, map[int32]int32{}
	if s := p.pod.Spec.SecurityContext; s != nil {
		for _, v := range s.Sysctls {
			sysctls[strings.ReplaceAll(v.Name, ".", "/")] = v.Value
		}
	}
	for _, c := range p.pod.Spec.Containers {
		for _, port := range c.Ports {
			if port.HostPort != 0 && port.Protocol != corev1.ProtocolUDP {
				ports[port.HostPort] = port.ContainerPort
			}
		}
	}
	// Ports of the node are taken for the addresses to which they lead. A port that another pod still has
	// cannot be taken.
	published := map[int32]net.Listener{}
	for port, inside := range ports {
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(Gateway, fmt.Sprint(port)))
		if err != nil {
			for _, l := range published {
				_ = l.Close()
			}
			return nil, err
		}
		published[inside] = listener
	}
	s, err := p.kubelet.network.sandbox(p.kubelet.api, sysctls)
	if err != nil {
		for _, listener := range published {
			_ = listener.Close()
		}
		return nil, err
	}
	for inside, listener := range published {
		s.ports = append(s.ports, listener)
		go forward(listener, func() string { return net.JoinHostPort(s.address, fmt.Sprint(inside)) })
	}
	return s, nil
}

func (p *podRun) container(c corev1.Container) *container {
	image, ok := p.kubelet.options.Image(c.Image)
	if !ok {
		p.kubelet.note("pod %s: image %s cannot be pulled", p.pod.Name, c.Image)
	}
	return &container{pod: p, spec: c, image: image}
}

// finish runs a container to its end, and reports whether it succeeded.
func (p *podRun) finish(ctx context.Context, c *container) bool {
	if err := c.start(ctx); err != nil {
		p.kubelet.note("container %s of %s: %v", c.spec.Name, p.pod.Name, err)
		return false
	}
	select {
	case <-c.process.gone:
	case <-p.over:
		c.stop(p.until)
		return false
	}
	c.restarts++
	code := c.process.code()
	if code != 0 {
		p.kubelet.note("container %s of %s ended with %d", c.spec.Name, p.pod.Name, code)
	}
	return code == 0
}

// supervise starts a container again and again until the pod ends.
func (p *podRun) supervise(ctx context.Context, c *container, ending *atomic.Bool) {
	p.lives.Go(func() {
		for ctx.Err() == nil && !ending.Load() {
			if err := c.start(ctx); err != nil {
				p.kubelet.note("container %s of %s: %v", c.spec.Name, p.pod.Name, err)
				pause(ctx, again)
				continue
			}
			c.mu.Lock()
			life := c.process
			c.mu.Unlock()
			p.lives.Go(func() { c.probe(ctx, life) })
			<-life.gone
			c.mu.Lock()
			c.started, c.ready = false, false
			if !ending.Load() {
				c.restarts++
			}
			killed := c.killed == life
			c.last = c.ended(life)
			c.mu.Unlock()
			if !ending.Load() && killed {
				pause(ctx, again)
			} else if !ending.Load() {
				p.kubelet.note("container %s of %s ended with %d, and is started again", c.spec.Name, p.pod.Name, life.code())
				pause(ctx, again)
			}
		}
	})
}

func (c *container) hasStarted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started
}

func (p *podRun) wait(ctx context.Context, holds func() bool) {
	for !holds() && ctx.Err() == nil && !p.ending.Load() {
		pause(ctx, look)
	}
}

// end ends a pod as a kubelet does: containers at once, sidecars after them and in the
// opposite order, then the pod.
func (p *podRun) end(ctx context.Context, deadline time.Time) {
	p.endOnce.Do(func() {
		p.ending.Store(true)
		p.until = deadline
		close(p.over)
		go func() {
			<-p.settled
			var all sync.WaitGroup
			for _, c := range p.main {
				all.Go(func() { c.stop(deadline) })
			}
			all.Wait()
			p.sidecarsEnding.Store(true)
			for _, c := range slices.Backward(p.sidecars) {
				c.stop(maxTime(deadline, time.Now().Add(2*time.Second)))
			}
			p.cancel()
			p.lives.Wait()
			if p.sandbox != nil {
				p.sandbox.close()
			}
			now := int64(0)
			_ = p.kubelet.client.Delete(ctx, p.pod, &client.DeleteOptions{GracePeriodSeconds: &now}) // gone already: fine
			_ = os.RemoveAll(filepath.Join(p.dir, "root"))
		}()
	})
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// kill ends everything at once, and waits for that: the test is over.
func (p *podRun) kill() {
	p.ending.Store(true)
	p.sidecarsEnding.Store(true)
	p.endOnce.Do(func() { close(p.over) })
	p.cancel()
	p.mu.Lock()
	p.killed = true
	for _, life := range p.processes {
		life.kill(syscall.SIGKILL)
	}
	p.mu.Unlock()
	<-p.settled
	p.lives.Wait()
	if p.sandbox != nil {
		p.sandbox.close()
	}
}

// tell writes the pod's status, if it has changed.
func (p *podRun) tell(ctx context.Context) {
	status := corev1.PodStatus{Phase: corev1.PodRunning, PodIP: p.sandbox.address, PodIPs: []corev1.PodIP{{IP: p.sandbox.address}}, HostIP: Gateway}
	ready := corev1.ConditionTrue
	of := func(c *container) corev1.ContainerStatus {
		c.mu.Lock()
		defer c.mu.Unlock()
		started := c.started
		out := corev1.ContainerStatus{Name: c.spec.Name, Image: c.spec.Image, Ready: c.ready, Started: &started, RestartCount: int32(c.restarts)}
		out.LastTerminationState.Terminated = c.last
		if c.process != nil && !c.process.ended() {
			out.State.Running = &corev1.ContainerStateRunning{}
		} else {
			out.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		}
		if !c.ready {
			ready = corev1.ConditionFalse
		}
		return out
	}
	for _, c := range p.main {
		status.ContainerStatuses = append(status.ContainerStatuses, of(c))
	}
	for _, c := range p.sidecars {
		status.InitContainerStatuses = append(status.InitContainerStatuses, of(c))
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: ready})
	}
	if equality.Semantic.DeepEqual(status, p.told) {
		return
	}
	told := *status.DeepCopy()
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Now()
	}
	before := p.pod.DeepCopy()
	before.ResourceVersion, before.Status = "", corev1.PodStatus{}
	after := before.DeepCopy()
	after.Status = status
	if err := p.kubelet.client.Status().Patch(ctx, after, client.MergeFrom(before)); err == nil {
		p.told = told
	}
}

// log returns what the containers of a pod wrote.
func (p *podRun) log() string {
	var out strings.Builder
	paths, _ := filepath.Glob(filepath.Join(p.dir, "*.log"))
	for _, path := range paths {
		text, _ := os.ReadFile(path) // of a pod that is going
		fmt.Fprintf(&out, "--- %s %s\n%s", p.pod.Name, filepath.Base(path), text[max(0, len(text)-4000):])
	}
	return out.String()
}
