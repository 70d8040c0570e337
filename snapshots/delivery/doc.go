// Package delivery has kustomize give a snapshot as the ConfigMaps of a store: it makes
// the files that stand beside those of a snapshot in a git tree.
//
//	kustomization.yaml           how the ConfigMaps are made of what is in the tree
//	configmaps/001-files.tar.gz  the snapshot's files, compressed, in pieces
//
// It promises that plain `kustomize build`, without flags and plugins, gives exactly
// the objects of [configmapstore.Delivered], and that the same snapshot gives the same
// files. They are no part of the snapshot: readers of the tree pass over them, and
// what is made of them is verified where it is read.
package delivery
