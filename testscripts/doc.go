// Package testscripts holds the user stories: what a person does with the real
// programs and real HAProxys, and what comes of it. Each .txtar file is one story,
// whose first comment says what it shows; the first word of its name says what it
// is about. It promises that what the documentation says of the programs holds
// for the binaries that are shipped, and leaves single decisions to the tests of
// the packages.
//
// TestSoak is no story: things happen at random, under load, for as long as one likes.
//
// The stories are in the language of
// [github.com/rogpeppe/go-internal/testscript], with these commands in addition.
// Each script has a loopback network, addresses of pods and ports of its own, in a
// network namespace that all scripts share (see internal/testing/kubetest).
//
//	instances N [-waves 1,100%] [-soak 0s] [-api 3.2] [-directories named] [-users file]
//		Starts the instances edge-1 to edge-N, each an HAProxy with a Dataplane
//		API, and writes fleet.yaml and config.yaml, which fit them. Directories that are
//		forgotten are not in fleet.yaml; users may be in a userlist of haproxy.cfg.
//	joins NAME...
//		Starts instances as pods of the cluster, which are not ready: in the namespace
//		edge, with the label app: haproxy. The first time it writes fleet.yaml, which has
//		them found by that label and asked with the Secret edge/dataplane, and config.yaml.
//	leaves NAME...
//		Deletes such pods, and ends the instances.
//	password TEXT
//		The instances take no other password from now on; the first one is testscript.
//	edit NAME OLD NEW
//		Replaces a text in an instance's haproxy.cfg, past its API, as a person does.
//	reload NAME
//		Has an instance's HAProxy load that file, by a command on its master socket.
//	restart NAME haproxy|api
//		Ends one of an instance's two processes with SIGTERM, and starts it again.
//	down NAME, up NAME
//		Ends an instance with its API as if its machine failed; starts it again.
//	fault NAME KIND[=ARGUMENT] [METHOD PATH [TIMES]], fault NAME none
//		Injects a failure into a Dataplane API: answer=STATUS, slow=DURATION,
//		fail-reload=LOG, hang, cut-before, cut-after or disk-full.
//	occupy NAME PORT
//		Takes a port of an instance's address, as another process would.
//	release
//		Gives back all ports that were taken.
//	requests NAME
//		Prints the calls that an instance's API had, but those that only read.
//	wrote NAME REGEXP
//		One of these calls was such.
//	pushes NAME N
//		N configurations were posted to the instance for a reload.
//	workers
//		Prints the process id of each instance's worker.
//
//	cluster start
//		Starts an API server, and names it to kubectl and the programs ($KUBECONFIG).
//		Nothing runs in that cluster: no controller, no node.
//	cluster stop, cluster resume
//		Ends the API server, which keeps what it stored; starts it where it was.
//	cluster expire
//		Restarts it such that no watch can go on from where it was (410).
//	cluster account NAMESPACE/NAME FILE
//		Makes a ServiceAccount, and writes a kubeconfig with a token for it.
//	cluster proxy FILE
//		Starts a proxy before the API server, and writes a kubeconfig that leads to it.
//	cluster foreign ANSWER|none
//		The proxy ends all its connections, and answers every request itself in one of the ways that
//		[kubetest.ForeignAnswers] names, or none.
//	kubectl ARG...
//		Runs kubectl as exec does. Where it changed roles or bindings, accounts may do what
//		they say, and no more, when the next line runs.
//
//	health PHASE NAMESPACE/NAME
//		The health checks in docs/how-to/argo-cd.md and flux.md say so of a ConfigMap.
//	service [-app PROTOCOL] [-tcp PORT] FILE NAMESPACE/NAME [POD...]
//		Writes a Service with an EndpointSlice for pods, which it starts: servers
//		that answer with their names, in the clear and over TLS. The appProtocol of
//		its port is http. An annotation may open a port of the instances for it. For
//		this, gone and spread, web-1..3 are web-1, web-2 and web-3.
//	gone POD...
//		Ends pods, which first finish what they are at.
//	secret [-mismatched] FILE NAMESPACE/NAME HOST...
//		Writes a Secret with a new certificate and its key, or another's.
//	identity FILE NAME
//		Adds a new identity of age to a file; the environment variable names who is to
//		seal for it.
//	certify FOLDER
//		Writes a new certificate of $WEBHOOK and its key, tls.crt and tls.key. Who
//		is to believe it finds it in $CA_BUNDLE.
//	fill FILE...
//		Replaces @NAME@ in files by the environment variable.
//
//	get [-on NAME] URL WANT...
//		Every instance, or the one named, answers the URL with one of the bodies
//		or with the status. URLs have no port, or 8080 for that of $PARTNER and 8081 for
//		that of $SECOND.
//	post [-on NAME] URL WANT...
//		The same with the method POST and nothing in the body.
//	spread URL WANT...
//		Every instance answers from each of these and from no other.
//	presents HOST SECRET|fallback
//		Every instance proves to be HOST by the newest certificate of the Secret.
//	answers URL STATUS [REGEXP]
//		A server of one of the programs answers so.
//
//	talk NAME websocket|poll|grpc URL|HOST
//		Opens a connection that stays, through the first instance: a WebSocket, a
//		request that is not answered yet, or a gRPC stream.
//	say NAME TEXT POD
//		Says something there, and is answered by one of the pods (a REGEXP).
//	load [-new|-raw] NAME URL
//		Clients ask every instance again and again, on connections that they keep,
//		or on a new one each time. With -raw they repeat no request, as http.Client
//		does with one whose connection was closed, and some are idle most of the time.
//	answered NAME N
//		They have had this many good answers.
//	unload NAME
//		They stop. None of their requests has failed.
//
//	collector [-hang]
//		Starts a collector of traces, or one that never answers, and names it in the
//		environment of the programs that are started afterwards.
//	spans REGEXP
//		Prints the traces that came, each as a tree; of several, those with a line
//		that matches.
//
//	start [-as NAME] PROGRAM ARG...
//		Starts a program in the background.
//	quit NAME
//		Ends it by SIGTERM; it must exit with 0.
//	crash NAME
//		Ends it by SIGKILL.
//	pause NAME, resume NAME
//		Stops it by SIGSTOP, as a machine does that sleeps; lets it go on.
//	logged NAME REGEXP
//		The program logged such a line since it was last started.
//	exits CODE PROGRAM ARG...
//		Runs a program that ends with this exit code, and keeps what it prints
//		for stdout and stderr.
//	says REGEXP PROGRAM ARG...
//		Runs a program that succeeds and prints such a text.
//	agent start|stop SOCKET
//		Starts or stops an agent that HAProxy asks by SPOP, to which a request with the word
//		"attack" in it is one.
//	settled STATE [NAME...]
//		The pusher with that state has no rollout under way, and all instances, or
//		those named, are in sync.
//
//	await [-within 3m] [!] COMMAND ARG...
//		Repeats one of these commands until it succeeds. Nothing ever sleeps for
//		a fixed time.
//
// kubectl and kustomize are those of the API server's release. The environment
// names $COMPILER and $PUSHER, addresses for the programs' own servers, $WEBHOOK,
// one more of the compiler's, and $PARTNER and $SECOND, ports of the instances that nothing has yet.
package testscripts
