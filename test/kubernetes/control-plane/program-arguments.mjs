import { join } from 'node:path'

/** Of clients of the API server that are to keep up with tests: the usual limit is 20 requests a second. */
const QPS = ['--kube-api-qps=500', '--kube-api-burst=1000']

/** Each program's arguments. @param ports three: etcd's two, then the API server's */
export function argumentsOf({ folder, kubeconfig, auditLog }, [etcd, peer, api], auditPolicy, stages) {
  const client = `http://127.0.0.1:${etcd}`
  const peers = `http://127.0.0.1:${peer}`
  const key = join(folder, 'service-accounts.key')
  const alone = [`--kubeconfig=${kubeconfig}`, '--leader-elect=false', '--secure-port=0', ...QPS]
  return {
    etcd: [
      ...[`--data-dir=${join(folder, 'etcd')}`, '--unsafe-no-fsync', '--log-level=warn'],
      ...[`--listen-client-urls=${client}`, `--advertise-client-urls=${client}`],
      ...[
        `--listen-peer-urls=${peers}`,
        `--initial-advertise-peer-urls=${peers}`,
        `--initial-cluster=default=${peers}`,
      ],
    ],
    'kube-apiserver': [
      ...[`--etcd-servers=${client}`, `--secure-port=${api}`, `--cert-dir=${join(folder, 'certificates')}`],
      // Where there is no default route it finds no address by itself; nor may it announce this one as a service's.
      ...['--bind-address=127.0.0.1', '--advertise-address=127.0.0.1', '--endpoint-reconciler-type=none'],
      ...['--service-cluster-ip-range=10.0.0.0/20', '--authorization-mode=RBAC'],
      ...[`--token-auth-file=${join(folder, 'tokens.csv')}`, '--service-account-issuer=https://kubernetes.default.svc'],
      ...[`--service-account-key-file=${key}`, `--service-account-signing-key-file=${key}`],
      ...[`--audit-policy-file=${auditPolicy}`, `--audit-log-path=${auditLog}`],
    ],
    'kube-controller-manager': [
      ...alone,
      `--service-account-private-key-file=${key}`,
      // Pods get it beside their token.
      `--root-ca-file=${join(folder, 'certificates/apiserver.crt')}`,
    ],
    'kube-scheduler': alone,
    kwok: [
      ...[`--kubeconfig=${kubeconfig}`, ...stages.map((file) => `--config=${file}`)],
      // Without leases of theirs nodes count as lost after 50 s.
      ...['--manage-all-nodes=true', '--node-lease-duration-seconds=40'],
      ...['--cidr=10.244.0.1/16', '--node-ip=127.0.0.1'],
    ],
    'cert-manager': [`-kubeconfig=${kubeconfig}`],
  }
}
