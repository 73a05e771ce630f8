//! TLS: the certificate of the server.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{Error, Result};

/// The files of a certificate, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate of the server, followed by those of its issuers.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn open(&self) -> Result<TlsAcceptor> {
        let certificates = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(|all| all.collect::<std::result::Result<Vec<_>, _>>())
            .map_err(|error| unreadable(&self.certificate, "certificate", &error))?;
        if certificates.is_empty() {
            return Err(unreadable(&self.certificate, "certificate", &PemError::NoItemsFound));
        }
        let key =
            PrivateKeyDer::from_pem_file(&self.key).map_err(|error| unreadable(&self.key, "key", &error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key));
        let mut config = config.map_err(|error| Error::Option {
            problem: format!(
                "the certificate `{}` and the key `{}` cannot be used: {error}",
                self.certificate.display(),
                self.key.display()
            ),
            hint: Some("give a certificate and its own private key".to_owned()),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn unreadable(path: &Path, what: &str, error: &PemError) -> Error {
    let problem = match error {
        PemError::Io(error) => error.to_string(),
        PemError::NoItemsFound => format!("it has no {what} in PEM"),
        error => error.to_string(),
    };
    Error::Option {
        problem: format!("the {what} `{}` cannot be read: {problem}", path.display()),
        hint: Some(format!(
            "give a file in PEM, which has a line `-----BEGIN …{}-----`",
            what.to_uppercase()
        )),
    }
}

/// The certificate in use.
pub(crate) struct Certificate {
    files: Tls,
    now: RwLock<TlsAcceptor>,
}

impl Certificate {
    pub(crate) fn open(files: Tls) -> Result<Self> {
        let now = RwLock::new(files.open()?);
        Ok(Self { files, now })
    }

    /// For the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again. If they cannot be used, the certificate stays.
    pub(crate) fn read_again(&self) -> Result<()> {
        let new = self.files.open()?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}
