package testscripts

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
)

// These are the credentials of every Dataplane API.
const (
	apiUser     = "admin"
	apiPassword = "testscript"
)

// instance is a HAProxy with its API, on an address of its own.
type instance struct {
	*dataplanetest.Instance
	name, ip string
}

// fleetOptions are the flags of the command instances.
type fleetOptions struct{ waves, soak, api, directories, users string }

func startInstances(w *world, _ *testscript.TestScript, args []string) error {
	if len(args)%2 == 0 || len(w.instances) > 0 {
		return errUsage
	}
	count, err := strconv.Atoi(args[0])
	if err != nil || count < 1 {
		return errUsage
	}
	o := fleetOptions{waves: "1,100%", soak: "0s", api: string(dataplanetest.V32), directories: "named", users: "file"}
	flags := map[string]*string{
		"-waves": &o.waves, "-soak": &o.soak, "-api": &o.api, "-directories": &o.directories, "-users": &o.users,
	}
	for pair := range slices.Chunk(args[1:], 2) {
		value, ok := flags[pair[0]]
		if !ok {
			return errUsage
		}
		*value = pair[1]
	}
	for n := 1; n <= count; n++ {
		if err := w.startInstance(n, o); err != nil {
			return err
		}
	}
	return w.writeFleet(o)
}

func (w *world) startInstance(n int, o fleetOptions) error {
	name, ip := fmt.Sprintf("edge-%d", n), w.network.ip(n)
	double, err := dataplanetest.New(dataplanetest.Options{
		HAProxy: filepath.Join(binaries, "haproxy"), API: dataplanetest.API(o.api), Program: w.realAPI, Addr: fmt.Sprintf("%s:%d", ip, w.network.API),
		Env: []string{"BIND_ADDRESS=" + ip}, Username: apiUser, Password: apiPassword,
		UsersInConfig: o.users == "haproxy.cfg",
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	w.instances = append(w.instances, &instance{double, name, ip})
	return nil
}

// writeFleet writes the file for the pusher, and one for the compiler. With the latter, every instance binds to
// its own address, and expects few connections, since there may be many instances on the machine.
func (w *world) writeFleet(o fleetOptions) error {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n  rollout:\n    waves: [%s]\n    soak: %s\n  instances:\n",
		`"`+strings.ReplaceAll(o.waves, ",", `", "`)+`"`, o.soak)
	for _, i := range w.instances {
		fmt.Fprintf(&b, "  - name: %s\n    url: %s\n    username: %s\n    passwordFile: password\n", i.name, i.URL(), apiUser)
		if o.directories != "forgotten" {
			fmt.Fprintf(&b, "    directories: {maps: %s, certificates: %s, general: %s}\n", i.Dirs.Maps, i.Dirs.Certificates, i.Dirs.General)
		}
	}
	return w.writeFiles(b.String())
}

// writeFiles writes the files for the pusher and the compiler.
func (w *world) writeFiles(fleet string) error {
	config := fmt.Sprintf("apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\nspec:\n"+
		"  bind: {addresses: [\"${BIND_ADDRESS}\"]}\n  http: {port: %d}\n  https: {port: %d}\n  status: {port: %d}\n  maxconn: 200\n",
		w.network.HTTP, w.network.HTTPS, w.network.Status)
	for name, content := range map[string]string{"password": apiPassword + "\n", "fleet.yaml": fleet, "config.yaml": config} {
		if err := replaceFile(filepath.Join(w.dir, name), []byte(content)); err != nil {
			return err
		}
	}
	return nil
}

// one returns the instance that is the only argument.
func (w *world) one(args []string) (*instance, error) {
	if len(args) != 1 {
		return nil, errUsage
	}
	return w.instance(args[0])
}

func (w *world) instance(name string) (*instance, error) {
	n := slices.IndexFunc(w.instances, func(i *instance) bool { return i.name == name })
	if n < 0 {
		return nil, fmt.Errorf("%w: there is no instance %q", errUsage, name)
	}
	return w.instances[n], nil
}
