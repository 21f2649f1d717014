// Command cert-manager runs cert-manager's controllers for self-signed and CA issuers in the cluster of a kubeconfig.
//
// The program that upstream ships is in a Go module that isn't published, and brings a webhook, ACME, Vault and Venafi, which
// tests don't need. A controller registers itself when its package is imported.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/ingresses"
	// Without the approver no request is ever signed.
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

const (
	workers = 5
	// Where the secrets of cluster-wide CA issuers are.
	issuerNamespace = "cert-manager"
	// Upstream waits an hour before it tries a failed certificate again; a test can't.
	retryAtFirst, retryAtMost = 5 * time.Second, time.Minute
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "which cluster, as whom")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

// run works until ctx is done. It says "ready" on standard output once its caches are filled.
func run(ctx context.Context, kubeconfig string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	contexts, err := controller.NewContextFactory(ctx, options(kubeconfig))
	if err != nil {
		return err
	}
	informers, err := contexts.Build()
	if err != nil {
		return err
	}
	var (
		running sync.WaitGroup
		failure = make(chan error, len(controller.Known()))
	)
	for name, construct := range controller.Known() {
		one, err := construct(contexts)
		if err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
		running.Go(func() {
			if err := one.Run(workers, ctx); err != nil && !errors.Is(err, context.Canceled) {
				failure <- fmt.Errorf("controller %s: %w", name, err)
				cancel()
			}
		})
	}
	// Only now: a controller asks for its informers when it is constructed.
	informers.SharedInformerFactory.Start(ctx.Done())
	informers.KubeSharedInformerFactory.Start(ctx.Done())
	informers.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	informers.SharedInformerFactory.WaitForCacheSync(ctx.Done())
	informers.KubeSharedInformerFactory.WaitForCacheSync(ctx.Done())
	fmt.Println("ready")
	running.Wait()
	close(failure)
	return <-failure
}

func options(kubeconfig string) controller.ContextOptions {
	return controller.ContextOptions{
		Kubeconfig:         kubeconfig,
		KubernetesAPIQPS:   -1, // no limit: hundreds of certificates at once
		KubernetesAPIBurst: -1,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: issuerNamespace},
		IngressShimOptions: controller.IngressShimOptions{DefaultIssuerKind: "Issuer", DefaultIssuerGroup: "cert-manager.io"},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: retryAtFirst,
			CertificateRequestMaximumBackoffDuration: retryAtMost,
		},
	}
}
